package extproc

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/signalbox-epp/signalbox/messages"
)

// idHeaders are the headers by which clients name a request, a tenant, an objective and a model.
var idHeaders = []string{
	"x-request-id", "x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id", "x-llm-d-inference-objective",
	"x-gateway-inference-objective", "x-llm-d-model-name-rewrite", "x-gateway-model-name-rewrite",
}

// idLines returns the headers of a request all of whose ids are one text, behind a number.
func idLines(number int, id string) []string {
	lines := []string{":method: POST", ":path: " + chatPath, "content-type: application/json"}
	for _, name := range idHeaders {
		lines = append(lines, fmt.Sprintf("%s: %d-%s", name, number, id))
	}
	return lines
}

// A client that reaches us without a proxy, which would bound its headers, may send ids of any size: they are cut and
// made text, and its request is served.
func TestIDsOfAMegabyteAreCut(t *testing.T) {
	for name, id := range map[string]string{
		"text":         strings.Repeat("x", 1<<20),
		"no UTF-8":     strings.Repeat("\xff\xfe", 1<<19),
		"mixed":        strings.Repeat("a\xc3\x00\u2028", 1<<20/6),
		"four bytes":   strings.Repeat("🙂", 1<<18),
		"half of them": strings.Repeat("🙂", 1<<18)[1:],
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(setup{})
			answers := converse(t, r.serve(t), qH(more, idLines(1, id)...), qB("{}", last), rH(last))
			if got := transcript(t, answers); len(got) < 2 || got[0] != "qH 10.0.0.1:8000" {
				t.Errorf("answers %q, want a pick", got)
			}
			q := r.only(t).arrived
			if f := q.Flow.Fairness; !strings.HasPrefix(f, "1-") || !strings.HasPrefix(q.Request.ClientID, "1-") {
				t.Errorf("the flow is %.20q, the id %.20q, want the beginnings of what was sent", f, q.Request.ClientID)
			}
			r.clean(t)
		})
	}
}

// Two requests with the same x-request-id are two: each cycle hears of its own stream alone.
func TestRequestsWithOneIDAreTwo(t *testing.T) {
	r := newRig(setup{})
	client := r.serve(t)
	ask := func() *call {
		c := open(t, client)
		c.send(qH(last, idLines(1, "same")...))
		c.receive()
		return c
	}
	first, second := ask(), ask()
	second.send(rH(last, ":status: 500"))
	second.finish()
	cycles := r.started()
	if len(cycles) != 2 || cycles[0].arrived.Request.ID == cycles[1].arrived.Request.ID {
		t.Fatalf("%d cycles, want two with ids of their own", len(cycles))
	}
	if told := cycles[0].lines(); len(told) > 0 {
		t.Errorf("the cycle of the first request was told %q of the second one", told)
	}
	first.send(rH(last, ":status: 200"))
	first.finish()
	for i, want := range []int{200, 500} {
		if m, ok := cycles[i].list()[0].(messages.ResponseStarted); !ok || m.Status != want {
			t.Errorf("cycle %d was told %q, want status %d", i, cycles[i].lines(), want)
		}
	}
}

// Nothing else of such ids is held while their requests wait.
func TestIDsOfAMegabyteAreNotHeld(t *testing.T) {
	const streams, most = 24, 24 << 20 // of ids, each stream sends 7 MB
	r := newRig(setup{script: func(*cycle) {}})
	client, id := r.serve(t), strings.Repeat("\xff🙂", 1<<20/5)
	before := heap()
	var calls []*call
	for i := range streams {
		c := open(t, client)
		c.send(qH(last, idLines(i, id)...))
		calls = append(calls, c)
	}
	for end := time.Now().Add(patience); ; <-time.After(10 * time.Millisecond) {
		all, took := len(r.started()), heap()-before
		if all == streams && took <= most {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d requests wait, %d MB are held, want %d at most", all, streams, took>>20, most>>20)
		}
	}
	for _, c := range r.started() {
		c.arrived.Stream.Tell(messages.PickMade{Destinations: messages.ListOf[messages.Address]("10.0.0.1:8000")})
	}
	for _, c := range calls {
		c.receive()
		c.finish()
	}
}

// heap returns how many bytes are in use once garbage, and what pools keep, has gone.
func heap() int64 {
	var stats runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// What is larger than a message may be ends its stream, and says so.
func TestIDBeyondAMessageEndsItsStream(t *testing.T) {
	r := newRig(setup{})
	c := open(t, r.serve(t))
	c.send(qH(last, "x-request-id: "+strings.Repeat("x", 32<<20)))
	if _, err := c.stream.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v, want resource exhausted", err)
	}
	if n := len(r.started()); n > 0 {
		t.Errorf("%d cycles began", n)
	}
}
