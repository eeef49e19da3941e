package policybench

import (
	"bytes"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const (
	mooncakeLine = `{"timestamp": 1500, "input_length": 600, "output_length": 6, "hash_ids": [7, 8]}` + "\n"
	sessionLine  = `{"id":"a","tools":128,"system":64,"r":[[0,300,5,4,-1,0,0,1.5,0],[9,420,6,6,1,4,3.5,1,0]]}` + "\n"
	azureLines   = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 " +
		"18:15:48.1805900,396,0\n"
)

func TestReadTrace(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want Trace
	}{
		"Mooncake's": {mooncakeLine + "\n" + mooncakeLine, Trace{Requests: []Request{
			{At: 1500 * time.Millisecond, Prompt: 600, Output: 6, Blocks: []uint64{7, 8}, BlockTokens: 512},
			{At: 1500 * time.Millisecond, Prompt: 600, Output: 6, Blocks: []uint64{7, 8}, BlockTokens: 512},
		}}},
		"sessions": {sessionLine, Trace{Sessions: []Session{{Tools: 128, System: 64, Turns: []Turn{
			{Prompt: 300, Output: 5, Blocks: 4, Back: -1},
			{Prompt: 420, Output: 6, Blocks: 6, Back: 1, Shared: 4, Think: 3500 * time.Millisecond},
		}}}}},
		"Azure's": {azureLines, Trace{Requests: []Request{
			{Prompt: 374, Output: 44}, {At: 1500 * time.Millisecond, Prompt: 396, Output: 1},
		}}},
		"Azure's, with a zone": {"2024-05-10 00:00:00.009930+00:00,2162,5\n", Trace{Requests: []Request{{Prompt: 2162,
			Output: 5}}}},
	} {
		got, err := ReadTrace(name, strings.NewReader(c.text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		c.want.Name = name
		if diff := cmp.Diff(&c.want, got, cmpopts.IgnoreUnexported(Trace{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestReadTraceRefuses(t *testing.T) {
	for name, c := range map[string]struct{ text, err string }{
		"nothing":             {"", "t: empty"},
		"a head alone":        {"TIMESTAMP,ContextTokens,GeneratedTokens\n", "t: no request"},
		"cut short":           {mooncakeLine + mooncakeLine[:40], "t: line 2: unexpected end of JSON input"},
		"a session cut short": {sessionLine[:60] + "\n", "t: line 1: unexpected end of JSON input"},
		"Azure's cut short": {azureLines + "2023-11-16 18:15:50,3",
			"t: line 4: got 2 columns, want TIMESTAMP,ContextTokens,GeneratedTokens"},
		"another object":  {`{"a":1}`, "t: line 1: neither timestamp nor r: want a request of Mooncake's format, or a session"},
		"a negative time": {`{"timestamp":-1,"input_length":5,"output_length":1}`, "t: line 1: timestamp: got -0.001 s, want 0 to 744 hours"},
		"a time backwards": {mooncakeLine + `{"timestamp":1,"input_length":5,"output_length":1}`,
			"t: line 2: timestamp: 0.001 s, before that of the line before"},
		"Azure's backwards": {azureLines + "2023-11-16 18:15:00,3,4",
			"t: line 4: timestamp: got -46.68059 s, want 0 to 744 hours"},
		"a time that is none": {"yesterday,3,4", `t: line 1: time: parsing time "yesterday"`},
		"a time past all": {`{"timestamp":1e300,"input_length":5,"output_length":1}`,
			"t: line 1: timestamp: got 1e+297 s"},
		"no prompt": {`{"timestamp":0,"input_length":0,"output_length":1}`,
			"t: line 1: input: got 0 tokens, want 1 to 2097152"},
		"a prompt past all": {`{"timestamp":0,"input_length":9000000,"output_length":1}`,
			"t: line 1: input: got 9000000 tokens"},
		"a negative answer": {`{"timestamp":0,"input_length":1,"output_length":-1}`,
			"t: line 1: output: got 0 tokens"},
		"more blocks than there": {`{"timestamp":0,"input_length":600,"output_length":1,"hash_ids":[1,2,3]}`, "t: line 1: 3 blocks, of a prompt that has 2 at most"},
		"a negative block":       {`{"timestamp":0,"input_length":600,"output_length":1,"hash_ids":[-1]}`, "t: line 1: json: cannot unmarshal number -1"},
		"no turn":                {`{"r":[]}`, "t: line 1: r: no turn"},
		"a short turn":           {`{"r":[[0,300,5]]}`, "t: line 1: r[0]: got 3 numbers, want 9"},
		"negative tools":         {`{"tools":-1,"r":[]}`, "t: line 1: tools and system: got -1 and 0 tokens"},
		"a turn's negative time": {`{"r":[[-1,300,5,4,-1,0,0,1,0]]}`, "t: line 1: r[0]: time: got -1 s"},
		"a negative think time":  {`{"r":[[0,300,5,4,-1,0,-2,1,0]]}`, "t: line 1: r[0]: think time: got -2 s"},
		"blocks of no prompt":    {`{"r":[[0,300,5,9,-1,0,0,1,0]]}`, "t: line 1: r[0]: got 9 blocks, of a prompt of 300 tokens"},
		"a turn before all": {`{"r":[[0,300,5,4,1,0,0,1,0]]}`,
			"t: line 1: r[0]: shares blocks with the turn 1 before"},
		"the turn itself": {`{"r":[[0,300,5,4,0,0,0,1,0]]}`,
			"t: line 1: r[0]: shares blocks with the turn 0 before"},
		"more than both have": {`{"r":[[0,100,5,1,-1,0,0,1,0],[0,300,5,4,1,2,0,1,0]]}`, "t: line 1: r[1]: shares 2 blocks, which one of the two has not"},
		"both kinds":          {mooncakeLine + sessionLine, "t: line 2: sessions and requests in one trace"},
		"a line past all":     {`{"a":"` + strings.Repeat("x", maxLineBytes), "t: line 1: bufio.Scanner: token too long"},
	} {
		_, err := ReadTrace("t", strings.NewReader(c.text))
		if err == nil || !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%s: got %v, want %s", name, err, c.err)
		}
	}
}

// repeated reads as a text that is there so many times.
type repeated struct {
	text  string
	times int
	rest  string
	read  int
}

func (r *repeated) Read(p []byte) (int, error) {
	if r.rest == "" {
		if r.times == 0 {
			return 0, io.EOF
		}
		r.rest, r.times = r.text, r.times-1
	}
	n := copy(p, r.rest)
	r.rest, r.read = r.rest[n:], r.read+n
	return n, nil
}

// A trace past its bound is refused where the bound is, and the rest of it is not read.
func TestReadTraceIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		line string
		most int
		err  string
	}{
		"sessions": {sessionLine, maxSessions, "t: line 20001: more than 20000 sessions"},
		"requests": {mooncakeLine, maxRequests, "t: line 200001: more than 200000 requests"},
	} {
		r := &repeated{text: c.line, times: 1_000_000}
		_, err := ReadTrace("t", r)
		if err == nil || err.Error() != c.err {
			t.Errorf("a million %s: got %v, want %s", name, err, c.err)
		}
		if most := (c.most + 1) * len(c.line); r.read > most+128<<10 {
			t.Errorf("a million %s: read %d bytes, want about %d", name, r.read, most)
		}
	}
}

func TestTracesAdd(t *testing.T) {
	var all Traces
	sessions, requests := &Trace{Name: "s", Sessions: []Session{{}}}, &Trace{Name: "r", Requests: []Request{{}}}
	for _, one := range []*Trace{sessions, requests} {
		if err := all.Add(one); err != nil {
			t.Errorf("%s: %v", one.Name, err)
		}
	}
	if all.Sessions != sessions || all.Requests != requests {
		t.Errorf("got %+v, want both traces", all)
	}
	if all.Add(sessions) == nil || all.Add(requests) == nil {
		t.Error("a second trace of a kind is taken, want an error")
	}
}

// FuzzReadTrace reads anything, and plays what is accepted.
func FuzzReadTrace(f *testing.F) {
	for _, text := range []string{mooncakeLine, sessionLine, azureLines, mooncakeLine[:50],
		`{"r":[[0,300,5,4,-1,0,-2,1,0]]}`, "-1,2,3"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		trace, err := ReadTrace("t", bytes.NewReader(text))
		if err != nil {
			return
		}
		for i, q := range trace.Requests {
			if q.At < 0 || i > 0 && q.At < trace.Requests[i-1].At || q.Prompt < 1 || q.Prompt > maxTokens ||
				q.Output < 0 {
				t.Errorf("request %d of %q: %+v", i, text, q)
			}
		}
		for i, s := range trace.Sessions {
			for k, turn := range s.Turns {
				if turn.Prompt < 1 || turn.Think < 0 || turn.Shared > turn.Blocks || turn.Back > k {
					t.Errorf("turn %d of session %d of %q: %+v", k, i, text, turn)
				}
			}
		}
		p := tiny(trace)
		p.Length = time.Second
		o, err := Run(p, Contender{rule: newIdealSticky})
		if err != nil || o.Lost > o.Requests || math.IsNaN(o.Mean) {
			t.Errorf("%q played: got %+v and %v", text, o, err)
		}
	})
}

// tiny is a short play of a trace to two small servers.
func tiny(trace *Trace) Play {
	p := usual(Load{Trace: trace, Scale: 1, ThinkMax: time.Second, Clients: 3, Rate: 2, Tenants: 2}, Engine{
		KVBlocks: 200, StepTokens: 512, MaxSequences: 8, Timing: GPU(),
	}, 2)
	p.Seed, p.Warm, p.Length = 1, 0, 5*time.Second
	if trace.Requests != nil {
		p.Load.Clients = 0
	}
	return p
}
