package cycle

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// inVain returns a request that left the line with an outcome.
func inVain(r *messages.Record, how messages.Outcome) *messages.Record {
	left := *r
	left.Wait.Outcome, left.Reason, left.Status = how, messages.TTLExpired, 429
	return &left
}

// waits takes a request through a wait that ends with its outcome, after it was let into the line or not.
func (b *bench) waits(r *messages.Record) {
	a := b.all.arrived(r)
	if r.Wait.Outcome == messages.OutcomeRejectedCapacity {
		a.enter(r.Wait.Outcome, time.Millisecond)
	} else {
		a.joined(r, time.Millisecond)
	}
	if r.Wait.Outcome == messages.OutcomeDispatched {
		a.onDispatched(r.QueueWait)
	}
	a.onLeft(r)
	a.ended(r)
}

func TestWaitsAreCountedByOutcome(t *testing.T) {
	b := newBench(t, spec)
	b.waits(inVain(&streamed, messages.OutcomeEvictedTTL))
	b.waits(inVain(&streamed, messages.OutcomeEvictedTTL))
	b.waits(inVain(&streamed, messages.OutcomeRejectedCapacity))
	served := streamed
	served.Wait.Outcome = messages.OutcomeDispatched
	b.waits(&served)
	open := b.all.arrived(&streamed)
	open.joined(&streamed, 3*time.Millisecond)
	b.want("llm_d_epp_flow_control_requests_total", map[string]string{
		"pool|Dispatched|2|": "1", "pool|EvictedTTL|2|": "2", "pool|RejectedCapacity|2|": "1",
	})
	b.want("llm_d_epp_flow_control_request_queue_duration_seconds", map[string]string{
		"f|pool|m|Dispatched|2|m|": "1 1", "f|pool|m|EvictedTTL|2|m|": "2 2", "f|pool|m|RejectedCapacity|2|m|": "1 1",
	})
	b.want("llm_d_epp_flow_control_request_enqueue_duration_seconds", map[string]string{
		"f|NotYetFinalized|2|": "4 0.006", "f|RejectedCapacity|2|": "1 0.001",
	})
	for _, prefix := range []string{"llm_d_epp_", "inference_extension_"} {
		b.want(prefix+"flow_control_queue_size", map[string]string{"f|pool|m|2|m|": "1"})
		b.want(prefix+"flow_control_queue_bytes", map[string]string{"f|pool|m|2|m|": "100"})
	}
}

// A request of an unknown flow counts as waiting under other, and under its name once that is known.
func TestWaitsMoveWhenNamesBecomeKnown(t *testing.T) {
	b := newBench(t, spec)
	r := asked("real", "mine", 0)
	r.Wait.Outcome = messages.OutcomeDispatched
	a := b.all.arrived(r)
	a.joined(r, time.Millisecond)
	b.want("llm_d_epp_flow_control_queue_size", map[string]string{"other|pool|other|2|other|": "1"})
	b.want("llm_d_epp_flow_control_request_enqueue_duration_seconds", nil)
	a.onDispatched(r.QueueWait)
	a.onLeft(r)
	r.Status = 200
	a.responded(r)
	a.ended(r)
	b.want("llm_d_epp_flow_control_queue_size", map[string]string{"other|pool|other|2|other|": "0"})
	b.want("llm_d_epp_flow_control_request_enqueue_duration_seconds",
		map[string]string{"mine|NotYetFinalized|2|": "1 0.001"})
}

// What waits adds to the page is reckoned as it is for all series of requests.
func TestCostOfWaitsIsWhatTheyTake(t *testing.T) {
	b := newBench(t, spec)
	b.waits(inVain(asked("m", "f", 200), messages.OutcomeEvictedTTL))
	for _, name := range []string{"n", strings.Repeat("x", 128), strings.Repeat(`\`, 64)} {
		b.all.labels.flows.Add(name)
		first := asked("m", name, 200)
		b.live(first, b.pool.Snapshot().Endpoints[0])
		for status := 400; status < 430; status++ {
			b.live(asked("m", name, status), b.pool.Snapshot().Endpoints[0])
		}
		before, taken := len(b.page()), b.all.labels.taken.Load()
		for how := messages.OutcomeRejectedCapacity; int(how) < messages.Outcomes; how++ {
			b.waits(inVain(first, how))
		}
		added, reckoned := len(b.page())-before, int(b.all.labels.taken.Load()-taken)
		t.Logf("%d bytes of name: %d bytes added, %d reckoned", len(name), added, reckoned)
		if added > reckoned || added < reckoned*8/10 {
			t.Errorf("%.9s: %d bytes were added, %d reckoned", name, added, reckoned)
		}
	}
}

// Where the page has no room, requests that wait count under other, and none is lost.
func TestWaitsWithoutRoomCountUnderOther(t *testing.T) {
	b := newBench(t, spec)
	const flows, each = 400, 2
	for i := range flows {
		name := fmt.Sprint("tenant-", i)
		b.live(asked("m", name, 200), b.pool.Snapshot().Endpoints[0])
		for how := messages.OutcomeRejectedCapacity; int(how) < messages.Outcomes; how++ {
			for range each {
				b.waits(inVain(asked("m", name, 200), how))
			}
		}
	}
	if page := len(b.page()); page > flowPageBytes+1<<20 {
		t.Errorf("the page has %d bytes", page)
	}
	got := b.values("llm_d_epp_flow_control_request_queue_duration_seconds")
	total, others := 0, 0
	for key, v := range got {
		n := 0
		if _, err := fmt.Sscan(v, &n); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(key, "|Dispatched|") {
			total += n
		}
		if strings.HasPrefix(key, "other|") {
			others += n
		}
	}
	want := flows * each * (messages.Outcomes - int(messages.OutcomeRejectedCapacity))
	if total != want || others == 0 {
		t.Errorf("%d waits are counted, %d under other; want %d, some under other", total, others, want)
	}
	for key, v := range b.values("llm_d_epp_flow_control_queue_size") {
		if v != "0" {
			t.Errorf("%s: %s requests wait, want none", key, v)
		}
	}
}

func TestMeteringAWaitAllocatesNothing(t *testing.T) {
	b := newBench(t, spec)
	r := inVain(&streamed, messages.OutcomeEvictedTTL)
	b.waits(r)
	if n := testing.AllocsPerRun(100, func() { b.waits(r) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
