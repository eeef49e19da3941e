package cycle_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/signalbox-epp/signalbox/actors/cycle"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

// moves says to which phase each message takes a request from each phase; a dot means that it stays. The runtime makes
// sure that RequestArrived comes first and once. A move over two arrows is named by the phase at its end.
const moves = `
	message                    queued  picked      responding  detached    lingering
	Dispatched                 picked  .           .           .           .
	Dispatched/slow            done    .           .           .           .
	Dispatched/empty-pool      .       .           .           .           .
	Rejected                   done    .           .           .           .
	Evicted                    done    .           .           .           .
	Revoked                    done    .           .           .           .
	ResponseStarted            .       responding  .           .           .
	ResponseStarted/bypasses   .       detached    .           .           .
	ResponseStarted/elsewhere  .       responding  .           .           .
	ResponseStarted/stranger   .       responding  .           .           .
	ResponseStarted/local      .       responding  .           .           .
	FirstTokenSeen             .       .           .           responding  .
	ErrorSeen                  .       .           .           .           .
	ResponseProgressed         .       .           .           .           .
	ResponseOngoing            .       .           .           .           detached
	EntriesDoubted             .       .           .           .           .
	ResponseEnded              done    done        done        done        done
	ResponseEnded/logged       done    done        done        done        done
	StreamGone                 done    done        done        done        .
	StreamGone/log-unknown     done    lingering   lingering   lingering   .
	StreamGone/log-seen        done    detached    detached    .           .
	StreamGone/log-awaited     done    lingering   lingering   lingering   .
	StreamGone/log-missing     done    done        done        done        .
	CycleQueried               .       .           .           .           .
	CycleDeadlinePassed/void   .       .           .           .           .
	a-minute                   done    .           .           .           done
	a-day                      done    done        done        done        done
	stopped                    done    done        done        done        done
`

// plays has a function for each message of moves, which sends it.
var plays = map[string]func(*walk){
	"Dispatched":                tells(messages.Dispatched{}),
	"Dispatched/slow":           onSlowPick,
	"Dispatched/empty-pool":     onEmptyPool,
	"Rejected":                  turnsAway(messages.Rejected{Reason: messages.NoCapacity}),
	"Evicted":                   turnsAway(messages.Evicted{Reason: messages.TTLExpired}),
	"Revoked":                   tells(messages.Revoked{Reason: messages.NoCapacity}),
	"ResponseStarted":           tells(messages.ResponseStarted{Status: 200}),
	"ResponseStarted/bypasses":  tells(messages.ResponseStarted{Status: 200, Bypasses: true}),
	"ResponseStarted/elsewhere": tells(messages.ResponseStarted{Status: 200, Served: addresses[second]}),
	"ResponseStarted/stranger":  tells(messages.ResponseStarted{Status: 200, Served: "10.9.9.9:1"}),
	"ResponseStarted/local": tells(messages.ResponseStarted{
		Status: 503, Local: "upstream_reset_before_response_started",
	}),
	"FirstTokenSeen":     tells(messages.FirstTokenSeen{}),
	"ErrorSeen":          tells(messages.ErrorSeen{Status: 500}),
	"ResponseProgressed": tells(messages.ResponseProgressed{}),
	"ResponseOngoing":    tells(messages.ResponseOngoing{ResponseBytes: 1}),
	"EntriesDoubted":     tells(messages.EntriesDoubted{}),
	"ResponseEnded":      tells(messages.ResponseEnded{ResponseBytes: 9}),
	"ResponseEnded/logged": tells(messages.ResponseEnded{
		Logged: messages.Logged{Status: 200, Served: addresses[second], Headers: 1},
	}),
	"StreamGone":             tells(messages.StreamGone{}),
	"StreamGone/log-unknown": tells(messages.StreamGone{Logged: true}),
	"StreamGone/log-seen":    tells(messages.StreamGone{Logged: true, Log: messages.LogSeen}),
	"StreamGone/log-awaited": tells(messages.StreamGone{Logged: true, Log: messages.LogAwaited}),
	"StreamGone/log-missing": tells(messages.StreamGone{Logged: true, Log: messages.LogMissing}),
	"CycleQueried": func(w *walk) {
		w.cycle.Tell(messages.CycleQueried{Recorder: runtimetest.NewProbe[messages.RecorderMsg](w.T)})
	},
	"CycleDeadlinePassed/void": tells(messages.CycleDeadlinePassed{Generation: 99}),
	"a-minute":                 func(w *walk) { w.cycle.Advance(time.Minute) },
	"a-day":                    func(w *walk) { w.cycle.Advance(25 * time.Hour) },
	"stopped":                  func(w *walk) { w.cycle.Stop() },
}

// turnsAway sends a message by which capacity takes the place in the line back.
func turnsAway(m messages.CycleMsg) func(*walk) {
	return func(w *walk) {
		w.count()
		w.placesBack = w.places
		tells(m)(w)
	}
}

func tells(m messages.CycleMsg) func(*walk) { return func(w *walk) { w.cycle.Tell(m) } }

// onSlowPick has the pick take too long.
func onSlowPick(w *walk) {
	w.clock.step = int64(turnLimit + pickLimit)
	w.cycle.Tell(messages.Dispatched{})
	w.clock.step = 0
}

func onEmptyPool(w *walk) {
	full := w.pool.Snapshot()
	endpoints.Publisher{Published: w.pool}.Publish(endpoints.NewSnapshot(4, nil), nil)
	w.cycle.Tell(messages.Dispatched{})
	endpoints.Publisher{Published: w.pool}.Publish(full, nil)
}

// walk is a request that is the probe of an ejected endpoint, with counts of all that other actors are told.
type walk struct {
	*scene
	places, prompts, answers, revoked int // taken or given so far; places are those in the line
	placesBack, promptsBack           int
	tried                             bool // the request was the probe
	abandoned, tested                 int  // what became of the probe: nothing, and results
}

// begun returns a walk whose request is queued, behind others.
func begun(t *testing.T) *walk {
	w := &walk{scene: gated(t)}
	flow.LineWriter{Line: &w.line}.Set(1, 0)
	w.plan.Profiles()[0].Picker.Most = func() int { return 2 }
	w.eject(first)
	w.arrive()
	return w
}

// paths are the messages that take a queued request to a phase.
var paths = map[string][]string{
	"queued":     nil,
	"picked":     {"Dispatched"},
	"responding": {"Dispatched", "ResponseStarted"},
	"detached":   {"Dispatched", "ResponseStarted/bypasses"},
	"lingering":  {"Dispatched", "ResponseStarted/bypasses", "StreamGone/log-awaited"},
}

// count reads what was told since the last time.
func (w *walk) count() {
	for _, m := range w.capacity.Told() {
		switch any(m).(type) {
		case messages.WaitRequested:
			w.places++
		case messages.WaitEnded:
			w.placesBack++
		}
	}
	for _, m := range w.prefix.Told() {
		switch any(m).(type) {
		case messages.PromptPlaced:
			w.prompts++
		case messages.PromptEnded:
			w.promptsBack++
		}
	}
	for _, m := range w.stream.Told() {
		switch m.(type) {
		case messages.PickMade, messages.PickFailed:
			w.answers++
		case messages.ServingRevoked:
			w.revoked++
		case messages.AnswerDue:
		}
	}
	for _, m := range w.outlier.Told() {
		switch m := any(m).(type) {
		case messages.ProbeAbandoned:
			w.abandoned++
		case messages.SuccessReported:
			w.tested++
		case messages.FailureReported:
			w.tested += min(int(m.Pick.Incident), 1)
		}
	}
}

// holding is what others keep for the request.
type holding struct{ place, entry, prompt, load, detached int }

// most is what a request may hold in each phase.
var most = map[string]holding{
	"queued":     {place: 1, entry: 1},
	"picked":     {entry: 1, prompt: 1, load: 1},
	"responding": {entry: 1, prompt: 1, load: 1},
	"detached":   {entry: 1, prompt: 1, load: 1, detached: 1},
	"lingering":  {entry: 1, prompt: 1},
	"done":       {},
}

func (w *walk) holds() holding {
	h := holding{
		place: w.places - w.placesBack, entry: w.book.Live(), prompt: w.prompts - w.promptsBack,
		detached: w.families.Outlived(),
	}
	for _, e := range w.pool.Snapshot().Endpoints {
		h.load += e.Inflight()
	}
	return h
}

// step takes one step, and returns what is wrong after it.
func (w *walk) step(name string) (wrong []string) {
	if w.actor.Phase() == "queued" && (name == "Dispatched" || name == "Dispatched/slow") {
		w.tried = true
	}
	plays[name](w)
	w.count()
	now := w.actor.Phase()
	got, limit := w.holds(), most[now]
	for what, n := range map[string][2]int{
		"places": {got.place, limit.place}, "entries": {got.entry, limit.entry}, "prompts": {got.prompt, limit.prompt},
		"load": {got.load, limit.load}, "detached": {got.detached, limit.detached},
	} {
		if n[0] < 0 || n[0] > n[1] {
			wrong = append(wrong, fmt.Sprintf("%s: %s: %d, want at most %d", now, what, n[0], n[1]))
		}
	}
	if got.entry != limit.entry || got.detached != limit.detached {
		wrong = append(wrong, fmt.Sprintf("%s: holds %+v, want %+v", now, got, limit))
	}
	if answered := now != "queued"; w.answers > 1 || w.revoked > 1 || answered != (w.answers == 1) && !w.left(name) {
		wrong = append(wrong, fmt.Sprintf("%s: %d answers, %d revoked", now, w.answers, w.revoked))
	}
	if w.cycle.Ended() != (now == "done") {
		wrong = append(wrong, fmt.Sprintf("%s: ended: %t", now, w.cycle.Ended()))
	}
	if now == "done" {
		wrong = append(wrong, w.settled()...)
	}
	return wrong
}

// left reports whether a message said that no answer is waited for.
func (w *walk) left(name string) bool { return strings.HasPrefix(name, "StreamGone") }

// settled returns what a request that ended has left behind, or gave back twice.
func (w *walk) settled() (wrong []string) {
	if w.places != 1 || w.placesBack != 1 || w.prompts != w.promptsBack || w.prompts > 1 {
		wrong = append(
			wrong,
			fmt.Sprintf("places %d, back %d; prompts %d, back %d", w.places, w.placesBack, w.prompts, w.promptsBack),
		)
	}
	if w.abandoned > 1 || w.abandoned == 1 && w.tested > 0 || w.tried != (w.abandoned+w.tested > 0) {
		wrong = append(
			wrong,
			fmt.Sprintf("it was the probe: %t; abandoned %d times, told %d results", w.tried, w.abandoned, w.tested),
		)
	}
	if len(w.ended) != 1 || w.cycle.Timers() != 0 {
		wrong = append(wrong, fmt.Sprintf("%d records, %d timers", len(w.ended), w.cycle.Timers()))
	}
	return wrong
}

// TestMoves plays every message in every phase, and then each way to end: what is held is given back once, and one
// answer was given.
func TestMoves(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(moves), "\n")
	phases := strings.Fields(lines[0])[1:]
	walked := map[string]bool{}
	for _, line := range lines[1:] {
		cells := strings.Fields(line)
		for i, from := range phases {
			t.Run(cells[0]+" in "+from, func(t *testing.T) {
				for _, last := range []string{"", "stopped", "ResponseEnded", "StreamGone", "a-day"} {
					w := begun(t)
					for _, name := range append(slices.Clone(paths[from]), cells[0]) {
						before := w.actor.Phase()
						if wrong := w.step(name); wrong != nil {
							t.Fatal(name, " in ", before, ": ", wrong)
						}
						walked[before+" "+w.actor.Phase()] = true
					}
					want := cells[1+i]
					if want == "." {
						want = from
					}
					if got := w.actor.Phase(); got != want {
						t.Fatalf("moves to %s, want %s", got, want)
					}
					if last != "" && want != "done" {
						if wrong := w.step(last); wrong != nil {
							t.Fatal(last, " at the end: ", wrong)
						}
					}
				}
			})
		}
	}
	if len(plays) != len(lines)-1 {
		t.Errorf("%d messages are played, want %d", len(lines)-1, len(plays))
	}
	for _, arrow := range cycle.Arrows() {
		if !walked[arrow] && !strings.HasPrefix(arrow, "created") {
			t.Errorf("no message takes the arrow %s", arrow)
		}
	}
}

// TestWalks plays messages at random: however a request ends, it has held what its phases allow, and gave all of it
// back once.
func TestWalks(t *testing.T) {
	names := slices.Sorted(maps.Keys(plays))
	rapid.Check(t, func(rt *rapid.T) {
		w := begun(t)
		for range 30 {
			name := rapid.SampledFrom(names).Draw(rt, "message")
			if wrong := w.step(name); wrong != nil {
				rt.Fatal(name, ": ", wrong)
			}
			if w.cycle.Ended() {
				return
			}
		}
		if wrong := w.step("stopped"); wrong != nil {
			rt.Fatal(wrong)
		}
	})
}

// A move that is not in the picture is a fault, which ends the cycle.
func TestMoveThatThePictureHasNot(t *testing.T) {
	w := begun(t)
	w.step("Dispatched")
	defer func() {
		if got, want := fmt.Sprint(recover()), "request 7: no way from picked to queued"; got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
		if wrong := w.step("stopped"); wrong != nil {
			t.Error(wrong)
		}
	}()
	w.arrive()
}
