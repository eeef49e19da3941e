// Command signalbox is an Endpoint Picker for LLM inference: Envoy asks it, over ext_proc, which model server serves a
// request. It wires actors, engine and adapters together, and never does their work itself.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/signalbox-epp/signalbox/adapters/telemetry"
)

func main() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go heed(signals, stop)
	if err := newRoot().ExecuteContext(ctx); err != nil {
		lastWords(os.Stderr, "signalbox: "+err.Error()+"\n")
		var quiet exitError
		if errors.As(err, &quiet) {
			os.Exit(int(quiet))
		}
		os.Exit(1)
	}
}

// lastWords writes to a reader that may have stopped reading, which must not hold up the end.
func lastWords(w io.Writer, text string) {
	s := telemetry.NewSink(w, 1<<20, func(uint64) []byte { return nil })
	_, _ = s.Write([]byte(text))
	_ = s.Close()
}

// heed ends the command in good order at the first signal, and the process at once at the second.
func heed(signals <-chan os.Signal, stop context.CancelFunc) {
	<-signals
	stop()
	second := <-signals
	lastWords(os.Stderr, "signalbox: ended at once by a second signal: "+second.String()+"\n")
	code := 1
	if number, ok := second.(syscall.Signal); ok {
		code = 128 + int(number) // as a shell has it
	}
	os.Exit(code)
}

// exitError is an exit status without a fault: a check that did not hold.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// newRoot is the command tree. Without a command it serves.
func newRoot() *cobra.Command {
	o := newOptions()
	root := &cobra.Command{
		Use:           "signalbox",
		Short:         "Endpoint Picker for LLM inference behind Envoy",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), o) },
	}
	o.register(root.Flags())
	so := newOptions()
	serving := &cobra.Command{
		Use:   "serve",
		Short: "Serve ext_proc to Envoy (the default command)",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), so) },
	}
	so.register(serving.Flags())
	root.AddCommand(serving, newSim(), newExplain(), newPlugins(), newConfig(), newVersion(), newTree(), newDemo(), newConformance(),
		newEnvoyConfig())
	return root
}

// gcRoom is how much garbage may gather between two collections, in bytes, where the heap is small: at Go's default of as much as
// is live, a small heap under load is collected many times a second. The memory that it costs does not grow with the heap.
const gcRoom = 64 << 20

// roomyGC keeps to gcRoom after each collection, or to as much as there is to look into: bodies may be most of what is live, but
// have no pointers, so that garbage as large as they are would cost memory and save nothing. $GOGC wins; $GOMEMLIMIT holds as ever.
func roomyGC() {
	if os.Getenv("GOGC") == "" {
		setGC(100)
	}
}

func setGC(percent int) {
	heap := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/heap:bytes"}}
	metrics.Read(heap)
	want := 400
	if live, scanned := heap[0].Value.Uint64(), heap[1].Value.Uint64(); live > 0 {
		room := uint64(gcRoom)
		if live > 2*gcRoom {
			room /= 2 // a burst is collected late: what is set here counts from the next collection on
		}
		want = int(min(max(100*max(room, scanned)/live, 5), 400))
	}
	if want < percent-percent/10 || want > percent+percent/10 { // each change stops the world for a moment
		debug.SetGCPercent(want)
		percent = want
	}
	collected := new(struct{ _ *byte }) // by the next collection
	runtime.SetFinalizer(collected, func(any) { setGC(percent) })
}
