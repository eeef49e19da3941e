package shard_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/signalbox-epp/signalbox/actors/shard"
	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

type scene struct {
	*testing.T
	actor  *runtimetest.Stage[messages.ShardMsg]
	asker  *runtimetest.Probe[messages.RecorderMsg]
	cycles map[messages.RequestID]*runtimetest.Probe[messages.CycleMsg]

	reported []messages.RequestID
	registry *prometheus.Registry
}

// newScene returns a shard that remembers requests 1 to 3, of which 1 and 3 are client "x"'s and 1 was answered 503,
// and runs 4 to 6.
func newScene(t *testing.T) *scene {
	s := &scene{
		T: t, actor: runtimetest.NewStage[messages.ShardMsg](t), asker: runtimetest.NewProbe[messages.RecorderMsg](t),
		cycles: map[messages.RequestID]*runtimetest.Probe[messages.CycleMsg]{}, registry: prometheus.NewRegistry(),
	}
	book := records.NewBook(8, 1<<20)
	for id := messages.RequestID(1); id <= 6; id++ {
		s.cycles[id] = runtimetest.NewProbe[messages.CycleMsg](t)
		book.Begin(id, s.cycles[id])
	}
	book.End(messages.Record{Request: 1, ClientID: "x", Status: 503})
	book.End(messages.Record{Request: 2})
	book.End(messages.Record{Request: 3, ClientID: "x"})
	s.actor.Play(shard.New(book, shard.NewMetrics(s.registry),
		func(r *messages.Record) { s.reported = append(s.reported, r.Request) }))
	s.actor.Tell(messages.ShardStarted{})
	return s
}

// asked checks which cycles the shard asked, and which records it answered by itself.
func (s *scene) asked(running []messages.RequestID, ended ...messages.RequestID) {
	s.Helper()
	for _, id := range running {
		s.cycles[id].Got(messages.CycleQueried{Query: 8, Recorder: s.asker})
	}
	for id, c := range s.cycles {
		if got := c.Told(); len(got) != 0 {
			s.Errorf("cycle %d was told %+v", id, got)
		}
	}
	told := s.asker.Told()
	if len(told) != 1 {
		s.Fatalf("%d answers, want 1", len(told))
	}
	got := told[0].(messages.RecordsFound)
	if got.Unasked != 0 {
		s.Errorf("%d are not asked", got.Unasked)
	}
	if got.Query != 8 || got.Shard != s.actor || !slices.Equal(got.Asked.Append(nil), running) ||
		got.Records.Len() != len(ended) {
		s.Fatalf("answered %+v, want %d running and %v", got, len(running), ended)
	}
	for i, id := range ended {
		if r := got.Records.At(i); r.Request != id {
			s.Errorf("record %d is of request %d, want %d", i, r.Request, id)
		}
	}
}

func TestQueries(t *testing.T) {
	type ids = []messages.RequestID
	for name, c := range map[string]struct {
		query   messages.RecordsQueried
		running ids
		ended   ids
	}{
		"a request that ended": {messages.RecordsQueried{Request: 2}, nil, ids{2}},
		"a request that runs":  {messages.RecordsQueried{Request: 5}, ids{5}, nil},
		"an unknown request":   {messages.RecordsQueried{Request: 50}, nil, nil},
		"a client's":           {messages.RecordsQueried{IDs: messages.ListOf("none", "x")}, ids{6, 5, 4}, ids{3, 1}},
		"the newest":           {messages.RecordsQueried{Newest: 2}, ids{6, 5}, ids{3, 2}},
		"more than there are":  {messages.RecordsQueried{Newest: 99}, ids{6, 5, 4}, ids{3, 2, 1}},
		"none":                 {messages.RecordsQueried{}, nil, nil},
		"fewer than none":      {messages.RecordsQueried{Newest: -3}, nil, nil},
		"the newest of some": {messages.RecordsQueried{Newest: 1,
			Filter: messages.RecordFilter{Status: messages.StatusRange{From: 500, To: 599}}}, ids{6, 5, 4}, ids{1}},
		"none of a client's": {messages.RecordsQueried{IDs: messages.ListOf("none", "x"),
			Filter: messages.RecordFilter{Model: "none"}}, ids{6, 5, 4}, nil},
		"not that client's one": {messages.RecordsQueried{Request: 2, IDs: messages.ListOf("x")}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			c.query.Query, c.query.Recorder = 8, s.asker
			s.actor.Tell(c.query)
			s.asked(c.running, c.ended...)
		})
	}
}

func TestCycleThatIsGoneIsNotWaitedFor(t *testing.T) {
	s := newScene(t)
	s.cycles[5].Close()
	s.actor.Tell(messages.RecordsQueried{Query: 8, Newest: 9, Recorder: s.asker})
	s.asked([]messages.RequestID{6, 4}, 3, 2, 1)
}

func TestRequestWithoutACycleIsRemembered(t *testing.T) {
	s := newScene(t)
	s.actor.Tell(messages.RequestRefused{Record: messages.Record{Request: 9, ClientID: "x",
		Reason: messages.BodyTimeout}})
	if !slices.Equal(s.reported, []messages.RequestID{9}) {
		t.Errorf("reported %v, want 9", s.reported)
	}
	s.actor.Tell(messages.RecordsQueried{Query: 8, Request: 9, Recorder: s.asker})
	s.asked(nil, 9)
}

func TestLoggedEndGoesToTheCycleThatRuns(t *testing.T) {
	s := newScene(t)
	end := messages.ResponseEnded{ResponseBytes: 7}
	s.cycles[6].Close()
	for _, id := range []messages.RequestID{5, 6, 2, 77} { // runs; ended just now; ended; never was
		s.actor.Tell(messages.ExchangeLogged{Request: id, End: end})
	}
	s.cycles[5].Got(end)
	want := `
# HELP signalbox_logged_ends_total Ends of requests from the access log: ended = told to the request's cycle, late = it had ended already.
# TYPE signalbox_logged_ends_total counter
signalbox_logged_ends_total{result="ended"} 1
signalbox_logged_ends_total{result="late"} 3
`
	if err := testutil.GatherAndCompare(s.registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestOngoingGoesToTheCycleThatRuns(t *testing.T) {
	s := newScene(t)
	far := messages.ResponseOngoing{ResponseBytes: 7}
	for _, id := range []messages.RequestID{5, 2, 77} { // runs; ended; never was
		s.actor.Tell(messages.ExchangeOngoing{Request: id, Response: far})
	}
	s.cycles[5].Got(far)
}

func TestEndOfALogIsToldToWhoeverRuns(t *testing.T) {
	s := newScene(t)
	s.cycles[6].Close()
	s.actor.Tell(messages.LogStreamEnded{})
	s.cycles[5].Got(messages.EntriesDoubted{})
	s.actor.Tell(messages.ConnectionDoubted{Connection: 3})
	s.cycles[5].Got(messages.EntriesDoubted{Connection: 3})
}

func TestRingIsAnsweredWithTheNewestEvents(t *testing.T) {
	s := newScene(t)
	for range 5 {
		s.actor.Tell(messages.ShardStarted{})
	}
	s.actor.Tell(messages.RingQueried{Query: 8, Newest: 3, Recorder: s.asker})
	want := messages.Ring{Total: 7, Events: messages.ListOf(make([]messages.RingEvent, 3)...)}
	s.asker.Got(messages.RingFound{Query: 8, Ring: want})
}

func TestMissedCyclesAreLookedUp(t *testing.T) {
	s := newScene(t)
	s.actor.Tell(messages.RecordsMissed{Query: 8, Requests: messages.ListOf[messages.RequestID](50, 3, 5, 1),
		Recorder: s.asker})
	told := s.asker.Told()
	if len(told) != 1 {
		t.Fatalf("%d answers, want 1", len(told))
	}
	got := told[0].(messages.MissedFound)
	if got.Query != 8 || got.Shard != s.actor || got.Records.Len() != 2 || got.Records.At(0).Request != 3 ||
		got.Records.At(1).Request != 1 ||
		!slices.Equal(got.Running.Append(nil), []messages.RequestID{5}) ||
		!slices.Equal(got.Gone.Append(nil), []messages.RequestID{50}) {
		t.Errorf("answered %+v, want that 3 and 1 have ended, 5 runs and 50 is gone", got)
	}
	for _, c := range s.cycles {
		c.Got()
	}
}

func TestBarrierIsAnsweredAtOnce(t *testing.T) {
	s := newScene(t)
	pool := runtimetest.NewProbe[messages.PoolMsg](t)
	s.actor.Tell(messages.SnapshotReplaced{Loop: 3, Version: 7, Pool: pool})
	pool.Got(messages.LoopPassed{Loop: 3, Version: 7})
}

// Of very many running requests not all are asked, and the answer says that it is not complete.
func TestCyclesThatAreNotAskedAreCounted(t *testing.T) {
	const running, most = 1500, 1024
	for name, c := range map[string]struct {
		query          messages.RecordsQueried
		asked, unasked int
	}{
		"the newest": {messages.RecordsQueried{Newest: 10}, 10, 0},
		"the newest of some": {messages.RecordsQueried{Newest: 10, Filter: messages.RecordFilter{Model: "a"}}, most,
			running - most},
		"a client's": {messages.RecordsQueried{IDs: messages.ListOf("none", "x")}, most, running - most},
		"one":        {messages.RecordsQueried{Request: 3}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			actor, asker := runtimetest.NewStage[messages.ShardMsg](t), runtimetest.NewProbe[messages.RecorderMsg](t)
			cycle := runtimetest.NewProbe[messages.CycleMsg](t)
			book := records.NewBook(8, 1<<20)
			for id := messages.RequestID(1); id <= running; id++ {
				book.Begin(id, cycle)
			}
			actor.Play(shard.New(book, shard.NewMetrics(prometheus.NewRegistry()), func(*messages.Record) {}))
			actor.Tell(messages.ShardStarted{})
			c.query.Recorder = asker
			actor.Tell(c.query)
			got := asker.Told()[0].(messages.RecordsFound)
			if n := len(cycle.Told()); n != c.asked || got.Asked.Len() != c.asked || got.Unasked != c.unasked {
				t.Errorf("%d are asked, %d said so, %d not; want %d and %d not", n, got.Asked.Len(), got.Unasked,
					c.asked, c.unasked)
			}
		})
	}
}
