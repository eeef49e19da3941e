package outlier_test

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/actors/outlier"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/flow"
	machine "github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

// scene is an outlier actor over a pool of four endpoints, of which two may be ejected.
type scene struct {
	*testing.T
	actor  *runtimetest.Stage[messages.OutlierMsg]
	pool   *endpoints.Published
	all    []*endpoints.Endpoint
	checks []messages.EndpointID
	full   bool
}

func newScene(t *testing.T, percent float64) *scene {
	s := &scene{T: t, actor: runtimetest.NewStage[messages.OutlierMsg](t), pool: endpoints.NewPublished()}
	for i := range uint32(4) {
		id := messages.EndpointID{Slot: i, Generation: i + 1}
		s.all = append(s.all, endpoints.New(id, messages.EndpointSpec{Address: messages.Address(rune('a' + i))}))
	}
	endpoints.Publisher{Published: s.pool}.Publish(endpoints.NewSnapshot(1, s.all), nil)
	settings := outlier.Config{
		MaxEjectionPercent: percent, Config: machine.Config{FirstEjection: time.Second,
			LongestEjection: 4 * time.Second},
	}
	s.actor.Play(outlier.New(settings, s.pool, s, flow.Bell{}, outlier.NewMetrics(prometheus.NewRegistry())))
	s.actor.Tell(messages.OutlierStarted{})
	return s
}

func (s *scene) Check(id messages.EndpointID, _ messages.Address, _ messages.Port[messages.OutlierMsg]) bool {
	if !s.full {
		s.checks = append(s.checks, id)
	}
	return !s.full
}

// fails tells of failures, so many times, a tenth of a second apart.
func (s *scene) fails(e int, kind messages.FailureKind, times int) {
	for range times {
		s.actor.Tell(messages.FailureReported{Endpoint: s.all[e].ID, Kind: kind})
		s.actor.Advance(100 * time.Millisecond)
	}
}

func (s *scene) ejected(e int, want bool) {
	s.Helper()
	status := s.all[e].Outlier()
	if got := status != nil && status.Ejected; got != want {
		s.Errorf("endpoint %d: ejected %v, want %v: %+v", e, got, want, status)
	}
}

func TestFailuresMoveTheirEndpointAlone(t *testing.T) {
	s := newScene(t, 50)
	s.fails(0, messages.ServerError, 1)
	if status := s.all[0].Outlier(); status == nil || status.Ejected || status.Cause != messages.ServerError {
		t.Errorf("status %+v, want degraded", status)
	}
	s.fails(0, messages.ServerError, 2)
	s.ejected(0, true)
	if status := s.all[1].Outlier(); status != nil {
		t.Errorf("another is %+v", status)
	}
}

// Good answers stand at the endpoint, where all loops note them.
func TestAnswersOfTheEndpointCount(t *testing.T) {
	s := newScene(t, 50)
	s.fails(0, messages.ServerError, 2)
	endpoints.LoadWriter{Endpoint: s.all[0]}.Answered(s.actor.Clock())
	for range 1000 {
		endpoints.LoadWriter{Endpoint: s.all[0]}.CountPick()
	}
	s.fails(0, messages.ServerError, 2)
	s.ejected(0, false)
}

func TestProbeDecides(t *testing.T) {
	s := newScene(t, 50)
	s.fails(0, messages.ServerError, 3)
	s.actor.Advance(time.Second)
	status := s.all[0].Outlier()
	if !status.Due(s.actor.Clock(), false) || !status.Probe() {
		t.Fatalf("%+v allows no probe", status)
	}
	s.actor.Tell(messages.ProbeAbandoned{Endpoint: s.all[0].ID, Incident: status.Incident})
	if status = s.all[0].Outlier(); !status.Ejected || !status.Probe() {
		t.Errorf("%+v allows no other probe", status)
	}
	s.actor.Tell(messages.EndpointChecked{Endpoint: s.all[0].ID}) // while a probe is under way
	if got := s.all[0].Outlier(); got != status {
		t.Errorf("status %+v, want that of the probe, %+v", got, status)
	}
	s.actor.Tell(messages.SuccessReported{Endpoint: s.all[0].ID, Incident: status.Incident})
	if got := s.all[0].Outlier(); got != nil {
		t.Errorf("status %+v after a good answer", got)
	}
}

func TestMaxEjectionPercent(t *testing.T) {
	s := newScene(t, 50)
	for e := range s.all {
		s.fails(e, messages.ServerError, 3)
	}
	ejected := 0
	for _, e := range s.all {
		if status := e.Outlier(); status == nil {
			t.Error("an endpoint that failed is healthy")
		} else if status.Ejected {
			ejected++
		}
	}
	if ejected != 2 {
		t.Errorf("%d of 4 are ejected, want 2", ejected)
	}
	alone := newScene(t, 50)
	endpoints.Publisher{Published: alone.pool}.Publish(endpoints.NewSnapshot(2, alone.all[:1]), nil)
	alone.fails(0, messages.ServerError, 20)
	alone.ejected(0, false)
}

func TestZeroPercentIsOff(t *testing.T) {
	s := newScene(t, 0)
	for kind := messages.Overload; kind < messages.Asleep; kind++ {
		s.fails(0, kind, 20)
	}
	if status := s.all[0].Outlier(); status != nil || len(s.checks) > 0 {
		t.Errorf("status %+v, and %d checks were made", status, len(s.checks))
	}
}

func TestBareEndHasTheEndpointChecked(t *testing.T) {
	s := newScene(t, 50)
	s.fails(0, messages.EndedBare, 30)
	if len(s.checks) != 1 {
		t.Fatalf("%d checks while one runs, want 1", len(s.checks))
	}
	s.actor.Tell(messages.EndpointChecked{Endpoint: s.all[0].ID, Connected: true})
	s.ejected(0, false)
	s.fails(0, messages.EndedBare, 1)
	if len(s.checks) != 2 {
		t.Errorf("%d checks, want another a second later", len(s.checks))
	}
	s.actor.Tell(messages.EndpointChecked{Endpoint: s.all[0].ID})
	s.ejected(0, true)

	s.fails(2, messages.ScrapeFailed, 1)
	if len(s.checks) != 3 || s.checks[2] != s.all[2].ID {
		t.Errorf("checked %v, want the one whose scrape failed too", s.checks)
	}

	s.full = true
	s.fails(1, messages.EndedBare, 1)
	s.full = false
	s.fails(1, messages.EndedBare, 1)
	if len(s.checks) != 4 {
		t.Errorf("%d checks, want one more: the refused one does not count", len(s.checks))
	}
}

func TestGoneEndpointsAreForgotten(t *testing.T) {
	s := newScene(t, 50)
	s.fails(0, messages.ServerError, 3)
	gone := s.all[0].ID
	endpoints.Publisher{Published: s.pool}.Publish(endpoints.NewSnapshot(2, s.all[1:]), nil)
	s.actor.Tell(messages.FailureReported{Endpoint: gone, Kind: messages.ConnectFailed})
	s.actor.Tell(messages.SuccessReported{Endpoint: gone, Incident: 1})
	s.actor.Tell(messages.ProbeAbandoned{Endpoint: gone, Incident: 1})
	s.actor.Tell(messages.EndpointChecked{Endpoint: gone})
	for e := 1; e < 4; e++ {
		s.ejected(e, false)
	}
}

func TestEndOfTheActorLetsAllBack(t *testing.T) {
	s := newScene(t, 50)
	s.fails(0, messages.ServerError, 3)
	s.actor.Crash()
	s.ejected(0, false)
}

// An endpoint that was away for so long that its machine is dropped comes back with a status that no machine ends.
func TestStatusWithoutAMachineEnds(t *testing.T) {
	s := newScene(t, 100)
	for e := range 3 {
		s.fails(e, messages.ServerError, 3)
	}
	publisher := endpoints.Publisher{Published: s.pool}
	publisher.Publish(endpoints.NewSnapshot(2, s.all[3:]), nil)
	s.fails(3, messages.ServerError, 1)
	publisher.Publish(endpoints.NewSnapshot(3, s.all), nil)
	s.ejected(0, true)
	s.actor.Tell(messages.SuccessReported{Endpoint: s.all[0].ID, Incident: s.all[0].Outlier().Incident})
	s.ejected(0, false)
}

// leaving is a client that waits for so long, and leaves without a first token.
type leaving struct {
	client string
	at     int // the endpoint
	waits  time.Duration
	prompt messages.Prompt
}

// answered is how long the prompts are that other endpoints answer.
var answered = messages.Prompt{Tokens: 1000, Computed: 600}

// leave plays clients that come one second after the other, and leave. Meanwhile other endpoints answer, unless silent,
// what was picked when the clients came.
func (s *scene) leave(silent bool, all ...leaving) {
	for _, l := range all {
		picked := s.actor.Clock()
		s.actor.Advance(l.waits)
		if !silent {
			endpoints.LoadWriter{Endpoint: s.all[3]}.Proved(answered, picked.Add(l.waits*3/4), s.actor.Clock(), true)
		}
		s.actor.Tell(messages.FailureReported{Endpoint: s.all[l.at].ID, Kind: messages.ClientsLeft, Client: l.client,
			Pick: messages.Pick{At: picked}, Prompt: l.prompt})
	}
}

// Several clients that leave one endpoint, while others give first tokens, are a failure of it. One client is none, and
// neither are clients that leave other endpoints too, or that leave while no endpoint answers.
func TestClientsThatLeaveOneEndpointEjectIt(t *testing.T) {
	of := func(client string, at int, waits time.Duration) leaving { return leaving{client, at, waits, answered} }
	a, b, c := of("a", 0, 4*time.Second), of("b", 0, 4*time.Second), of("c", 0, 4*time.Second)
	brief := of("b", 0, time.Millisecond)
	long := func(l leaving) leaving { return leaving{l.client, l.at, l.waits, messages.Prompt{Tokens: 8000}} }
	lost := func(l leaving) leaving { return leaving{l.client, l.at, l.waits, messages.Prompt{Computed: 8000}} }
	for name, play := range map[string]struct {
		silent, want bool
		all          []leaving
	}{
		"three clients":              {false, true, []leaving{a, b, c}},
		"two, and one of them twice": {false, true, []leaving{a, b, a}},
		"two clients once":           {false, false, []leaving{a, b}},
		"one client, however often":  {false, false, []leaving{a, a, a, a, a, a}},
		"without a name, one by one": {false, false, slices.Repeat([]leaving{of("", 0, a.waits)}, 3)},
		"whose prompts are longer":   {false, false, []leaving{long(a), long(b), long(c)}},
		"who have more to compute":   {false, false, []leaving{lost(a), lost(b), lost(c)}},
		"two of whose prompts are":   {false, false, []leaving{a, long(b), long(c)}},
		"while no endpoint answers":  {true, false, []leaving{a, b, c}},
		"all at once":                {false, false, []leaving{brief, brief, of("c", 0, time.Millisecond)}},
		"clients that leave everywhere": {
			false, false, []leaving{of("a", 1, a.waits), of("b", 1, a.waits), a, b, a, b},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, 50)
			s.leave(play.silent, play.all...)
			s.ejected(0, play.want)
			s.ejected(1, false)
		})
	}
}

// Clients without a name are several if they waited at the same time.
func TestClientsWithoutANameThatWaitTogetherAreSeveral(t *testing.T) {
	s := newScene(t, 50)
	picked := s.actor.Clock()
	for range 3 {
		s.actor.Advance(3 * time.Second)
		endpoints.LoadWriter{Endpoint: s.all[3]}.Proved(messages.Prompt{}, s.actor.Clock(), s.actor.Clock(), true)
		s.actor.Tell(messages.FailureReported{Endpoint: s.all[0].ID, Kind: messages.ClientsLeft,
			Pick: messages.Pick{At: picked}})
	}
	s.ejected(0, true)
}

// An endpoint that gives anybody anything is not silent: the leaves before that count no more.
func TestTokenMakesLeavesVoid(t *testing.T) {
	s := newScene(t, 50)
	a, b := leaving{"a", 0, 4 * time.Second, answered}, leaving{"b", 0, 4 * time.Second, answered}
	s.leave(false, a, b)
	endpoints.LoadWriter{Endpoint: s.all[0]}.Proved(messages.Prompt{}, s.actor.Clock(), s.actor.Clock(), true)
	s.actor.Advance(time.Millisecond)
	s.leave(false, a, b)
	s.ejected(0, false)
	s.actor.Advance(time.Minute) // they are too old to count with others
	s.leave(false, a, b)
	s.ejected(0, false)
}

// The leave of a client whose request was the probe is the probe's failure.
func TestProbeWhoseClientLeavesFails(t *testing.T) {
	s := newScene(t, 50)
	s.leave(false, leaving{"a", 0, 4 * time.Second, answered}, leaving{"b", 0, 4 * time.Second, answered},
		leaving{"c", 0, 4 * time.Second, answered})
	status := s.all[0].Outlier()
	if status == nil || !status.Ejected || status.Cause != messages.ClientsLeft {
		t.Fatalf("status %+v, want ejected for clients that left", status)
	}
	s.leave(true, leaving{"d", 0, time.Second / 2, answered}) // it was picked before the ejection was over
	if got := s.all[0].Outlier(); got.Until != status.Until {
		t.Errorf("ejected until %v, want %v as before", got.Until, status.Until)
	}
	s.actor.Advance(time.Second)
	s.leave(false, leaving{"e", 0, 4 * time.Second, answered})
	if got := s.all[0].Outlier(); !got.Until.Equal(s.actor.Clock().Add(2 * time.Second)) {
		t.Errorf("ejected until %v, want two seconds from now, %v", got.Until, s.actor.Clock())
	}
}
