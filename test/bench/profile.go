package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/signalbox-epp/signalbox/test/bench/load"
)

// profiler is a file that joins the command while it is built, so that the product needs no way to be profiled.
//
//go:embed testdata/profiler.go.txt
var profiler []byte

// overlay is a file for go build that adds the profiler to the command.
func (l *lab) overlay() (string, error) {
	file := filepath.Join(l.folder, "profiler.go")
	if err := os.WriteFile(file, profiler, 0o600); err != nil {
		return "", err
	}
	place, err := filepath.Abs("cmd/signalbox/zz_profiler.go")
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {place: file}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(l.folder, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}

// profiles loads Signalbox and has it write cpu.pprof, and allocs.pprof with allocs_before.pprof to take off it.
func (b *bench) profiles(ctx context.Context, folder string, bodyBytes int) error {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := os.Setenv("PROFILE_FOLDER", folder); err != nil {
		return err
	}
	if err := pin(ctx, generatorCore); err != nil {
		return err
	}
	runtime.GOMAXPROCS(1)
	p, err := b.box(serverCore, 10)
	if err != nil {
		return err
	}
	all, err := load.Scripts(b.shape(bodyBytes))
	if err != nil {
		return err
	}
	g, err := load.NewGenerator(p.address, 1, all)
	if err != nil {
		return err
	}
	defer g.Close()
	if _, err := g.Closed(b.streams, time.Second); err != nil {
		return err
	}
	if err := p.cmd.Process.Signal(syscall.SIGUSR1); err != nil { // begin
		return err
	}
	r, err := g.Closed(b.streams, b.round*time.Duration(b.rounds))
	if err != nil {
		return err
	}
	if err := p.cmd.Process.Signal(syscall.SIGUSR2); err != nil { // write
		return err
	}
	b.printf("%d requests; profiles in %s\n", r.Requests, folder)
	<-time.After(time.Second) // it writes
	return nil
}
