package kube

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// nothingScraped is a configuration that reads no page of the pods, which nobody runs.
const nothingScraped = `apiVersion: llm-d.ai/v1
kind: EndpointPickerConfig
plugins: [{type: random-picker}]
schedulingProfiles: [{name: random, plugins: [{pluginRef: random-picker}]}]
`

// atOnce runs a function for each of n things, 16 at a time.
func atOnce(n int, do func(i int)) {
	var all sync.WaitGroup
	turns := make(chan struct{}, 16)
	for i := range n {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			do(i)
		})
	}
	all.Wait()
}

// A thousand pods are followed while they change, and a fifth of them that is lost at once is gone while the rest
// stays. What that costs is logged, and held against nothing: the machine may be busy.
func TestThousandPods(t *testing.T) {
	const count, changes = 1000, 100
	s := newSpace(t, shared)
	name := func(i int) string { return fmt.Sprintf("pod-%04d", i) }
	ip := func(i int) string { return fmt.Sprintf("10.1.%d.%d", i/250, i%250+1) }
	var want []string
	for i := range count {
		want = append(want, fmt.Sprintf("%s-rank-0 %s:8000", name(i), ip(i)))
	}
	atOnce(count, func(i int) { s.pod(name(i), ip(i), vllm, nil) })
	s.pool(8000)
	began := time.Now()
	p := startPicker(t, s.inPool("--config-text", nothingScraped)...)
	p.ready(true)
	p.knows(want...)
	t.Logf("ready and complete %v after the start, %s", time.Since(began), p.cost(t))

	began = time.Now()
	every := time.NewTicker(100 * time.Millisecond)
	defer every.Stop()
	for i := range changes {
		s.status(name(i%50), ip(i%50), i >= 50)
		<-every.C
	}
	p.knows(want...)
	t.Logf("after %d changes in %v: %s", changes, time.Since(began), p.cost(t))

	atOnce(count/5, func(i int) { s.status(name(i), ip(i), false) })
	began = time.Now()
	p.knows(want[count/5:]...)
	t.Logf("%d that are lost at once are gone %v after the last was written, %s", count/5, time.Since(began), p.cost(t))
	for range 100 {
		got, _, text := p.pick()
		first, _, _ := strings.Cut(got, ",")
		if !slices.ContainsFunc(want[count/5:], func(e string) bool { return strings.HasSuffix(e, " "+first) }) {
			t.Fatalf("picked %q, %s; want an endpoint that is there", got, text)
		}
	}
}

// cost returns the memory and the processor time of the process so far, as Linux tells them.
func (p *picker) cost(t *testing.T) string {
	t.Helper()
	folder := filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid))
	status, err := os.ReadFile(filepath.Join(folder, "status"))
	if err != nil {
		return "cost unknown: " + err.Error()
	}
	memory := ""
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "VmRSS:") {
			memory = strings.Join(strings.Fields(line)[1:], " ")
		}
	}
	stat, err := os.ReadFile(filepath.Join(folder, "stat"))
	if err != nil {
		return "cost unknown: " + err.Error()
	}
	fields := strings.Fields(string(stat))
	user, _ := strconv.Atoi(fields[13])
	system, _ := strconv.Atoi(fields[14])
	return fmt.Sprintf("%s resident, %d ms of a processor so far", memory, (user+system)*10)
}
