package parsers_test

import (
	"strings"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// BenchmarkOrder reads bodies of 64 KB whose messages stand before system and tools, in turns with the same members in
// the order of engines, and reports the shortest time of each as that many times the other's.
func BenchmarkOrder(b *testing.B) {
	tools := `"tools":[` + strings.TrimSuffix(strings.Repeat(`{"name":"read","description":"`+
		strings.Repeat("Reads a file from the disk. ", 14)+`","input_schema":{"type":"object","properties":{"path":{"type":`+
		`"string"}}}},`, 30), ",") + `]`
	system := `"system":[{"type":"text","text":"` + strings.Repeat("You are an agent that edits files.\\n", 300) + `"}]`
	turns := `"messages":[` + strings.TrimSuffix(strings.Repeat(`{"role":"user","content":[{"type":"text","text":"`+
		strings.Repeat("Answer briefly, and cite what you rely on.\\n", 40)+`"}]},`, 20), ",") + `]`
	join := func(members ...string) []byte { return []byte(`{"model":"m",` + strings.Join(members, ",") + `}`) }
	right, wrong := join(tools, system, turns), join(turns, system, tools)
	if len(right) < 60<<10 || len(right) > 68<<10 {
		b.Fatalf("%d bytes, want 64 KB", len(right))
	}
	read := func(body []byte) time.Duration {
		var got messages.Request
		began := time.Now()
		if err := parser.Parse("/v1/messages", jsonType, "", body, &got); err != nil {
			b.Fatal(err)
		}
		return time.Since(began)
	}
	inOrder, behind := time.Hour, time.Hour // the shortest of each, which nothing else disturbed
	for b.Loop() {
		inOrder, behind = min(inOrder, read(right)), min(behind, read(wrong))
	}
	b.ReportMetric(float64(behind)/float64(inOrder), "behind/in-order")
	b.ReportMetric(float64(inOrder)/1000, "µs/in-order")
	b.ReportMetric(0, "ns/op") // it is that of both
}
