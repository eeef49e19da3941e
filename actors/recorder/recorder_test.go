package recorder_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/actors/recorder"
	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

type scene struct {
	*testing.T
	actor  *runtimetest.Stage[messages.RecorderMsg]
	shards [2]*runtimetest.Probe[messages.ShardMsg]
	admin  *runtimetest.Probe[messages.AdminMsg]
}

func newScene(t *testing.T) *scene {
	s := &scene{T: t, actor: runtimetest.NewStage[messages.RecorderMsg](t),
		admin: runtimetest.NewProbe[messages.AdminMsg](t)}
	var sinks []messages.Sink[messages.ShardMsg]
	for i := range s.shards {
		s.shards[i] = runtimetest.NewProbe[messages.ShardMsg](t)
		sinks = append(sinks, s.shards[i])
	}
	s.actor.Play(recorder.New(sinks))
	s.actor.Tell(messages.RecorderStarted{})
	return s
}

// ask tells a query and gives the number under which the shards got it.
func (s *scene) ask(m messages.RequestQueried) messages.QueryID {
	s.Helper()
	m.Admin = s.admin
	s.actor.Tell(m)
	told := s.shards[1].Told()
	if len(told) != 1 {
		s.Fatalf("told %+v, want one query", told)
	}
	q := told[0].(messages.RecordsQueried)
	want := messages.RecordsQueried{Query: q.Query, Request: m.Request, IDs: m.IDs, Filter: m.Filter, Newest: m.Newest,
		Recorder: s.actor}
	if !reflect.DeepEqual(q, want) {
		s.Errorf("told %+v, want %+v", q, want)
	}
	return q.Query
}

type ids = []messages.RequestID

func record(id messages.RequestID, client string) messages.Record {
	return messages.Record{Request: id, ClientID: client}
}

// found returns shard 1's answer.
func (s *scene) found(query messages.QueryID, asked []messages.RequestID, lost uint64,
	r ...messages.Record) messages.RecordsFound {
	return messages.RecordsFound{
		Query: query, Shard: s.shards[1], Asked: messages.ListOf(asked...), Lost: lost, Records: messages.ListOf(r...),
	}
}

// cycle returns a running cycle's answer.
func cycle(query messages.QueryID, r messages.Record) messages.RecordsFound {
	return messages.RecordsFound{Query: query, Records: messages.ListOf(r)}
}

// missed checks that shard 1 was asked again for these.
func (s *scene) missed(query messages.QueryID, ids ...messages.RequestID) {
	s.Helper()
	s.shards[1].Got(messages.RecordsMissed{Query: query, Requests: messages.ListOf(ids...), Recorder: s.actor})
}

func TestAllShardsAndRunningCyclesAreGathered(t *testing.T) {
	s := newScene(t)
	q := s.ask(messages.RequestQueried{Newest: 2})
	s.actor.Tell(s.found(q, ids{4}, 5, record(3, "")))
	s.actor.Tell(s.found(q, nil, 6, record(9, "")))
	s.admin.Got()
	s.actor.Tell(cycle(q, record(4, "")))
	s.admin.Got(messages.RecordsAnswered{Records: messages.ListOf(record(9, ""), record(4, "")), Lost: 11})
	s.actor.Tell(s.found(q, nil, 0, record(1, ""))) // late
	s.actor.Advance(time.Minute)
	s.admin.Got()
}

func TestOnlyTheClientsOwnAreListed(t *testing.T) {
	s := newScene(t)
	q := s.ask(messages.RequestQueried{IDs: messages.ListOf("none", "x")})
	s.actor.Tell(s.found(q, ids{2}, 0, record(1, "x")))
	s.actor.Tell(s.found(q, nil, 0))
	s.actor.Tell(cycle(q, record(2, "y"))) // a cycle that ran, of somebody else
	s.admin.Got(messages.RecordsAnswered{Records: messages.ListOf(record(1, "x"))})
}

func TestShardThatDoesNotAnswerMakesItPartial(t *testing.T) {
	s := newScene(t)
	q := s.ask(messages.RequestQueried{Request: 1})
	s.actor.Tell(s.found(q, nil, 0, record(1, "")))
	s.actor.Advance(time.Second - 1)
	s.admin.Got()
	s.actor.Advance(1)
	s.admin.Got(messages.RecordsAnswered{Records: messages.ListOf(record(1, "")), Partial: true})
}

func TestShardsThatRefuseMakeItPartialAtOnce(t *testing.T) {
	s := newScene(t)
	s.shards[0].Close()
	q := s.ask(messages.RequestQueried{Request: 1})
	s.actor.Tell(s.found(q, nil, 0))
	s.admin.Got(messages.RecordsAnswered{Partial: true, Records: messages.TakeList[messages.Record](nil)})
	s.shards[1].Close()
	s.actor.Tell(messages.RequestQueried{Request: 1, Admin: s.admin})
	s.admin.Got(messages.RecordsAnswered{Partial: true})
	if n := s.actor.Timers(); n != 0 {
		t.Errorf("%d timers, want 0", n)
	}
}

func TestTooManyQueriesAreAnsweredEmpty(t *testing.T) {
	s := newScene(t)
	for range 64 {
		s.ask(messages.RequestQueried{Newest: 1})
	}
	s.admin.Got()
	s.actor.Tell(messages.RequestQueried{Newest: 1, Admin: s.admin})
	s.admin.Got(messages.RecordsAnswered{Partial: true})
}

func TestCrashAnswersWhatIsOpen(t *testing.T) {
	s := newScene(t)
	q := s.ask(messages.RequestQueried{Newest: 9})
	s.actor.Tell(s.found(q, nil, 1, record(1, "")))
	s.actor.Crash()
	s.admin.Got(messages.RecordsAnswered{Records: messages.ListOf(record(1, "")), Lost: 1, Partial: true})
}

func TestAnswerForAnEarlierIncarnationFindsNoQuery(t *testing.T) {
	s := newScene(t)
	old := s.ask(messages.RequestQueried{Newest: 9})
	s.actor.Crash()
	s.admin.Told()
	s.actor.Advance(time.Millisecond)
	s.actor.Play(recorder.New([]messages.Sink[messages.ShardMsg]{s.shards[1]}))
	s.actor.Tell(messages.RecorderStarted{})
	now := s.ask(messages.RequestQueried{Newest: 9})
	s.actor.Tell(s.found(old, nil, 0, record(1, "")))
	s.admin.Got()
	s.actor.Tell(s.found(now, nil, 0, record(2, "")))
	s.admin.Got(messages.RecordsAnswered{Records: messages.ListOf(record(2, ""))})
}

func TestCycleThatEndsBeforeItsQuestionIsFoundInTheBook(t *testing.T) {
	s := newScene(t)
	q := s.ask(messages.RequestQueried{Newest: 9})
	s.actor.Tell(s.found(q, nil, 0))
	s.actor.Tell(s.found(q, ids{4, 5, 6, 7}, 0))
	s.missed(q, 4, 5, 6, 7)
	s.actor.Tell(cycle(q, record(4, "")))
	s.actor.Tell(messages.MissedFound{
		Query: q, Shard: s.shards[1], Records: messages.ListOf(record(5, "")), Running: messages.ListOf(ids{4, 6}...),
		Gone: messages.ListOf(ids{7}...),
	})
	s.missed(q, 6) // 4 has answered meanwhile
	s.admin.Got()
	s.actor.Tell(messages.MissedFound{Query: q, Shard: s.shards[1], Records: messages.ListOf(record(6, ""))})
	s.admin.Got(messages.RecordsAnswered{Records: messages.ListOf(record(6, ""), record(5, ""), record(4, ""))})
	s.actor.Tell(messages.MissedFound{Query: q, Shard: s.shards[1]}) // late
	s.shards[1].Got()
	s.admin.Got()
	if n := s.actor.Timers(); n != 0 {
		t.Errorf("%d timers, want 0", n)
	}
}

func TestCycleThatAnswersBeforeItsShardIsNotAskedForAgain(t *testing.T) {
	s := newScene(t)
	q := s.ask(messages.RequestQueried{Newest: 9})
	s.actor.Tell(cycle(q, record(4, "")))
	s.actor.Tell(s.found(q, nil, 0))
	s.actor.Tell(s.found(q, ids{4}, 0, record(3, "")))
	s.shards[1].Got()
	s.admin.Got(messages.RecordsAnswered{Records: messages.ListOf(record(4, ""), record(3, ""))})
}

func TestRequestThatIsToldOfTwiceIsListedOnce(t *testing.T) {
	s := newScene(t)
	q := s.ask(messages.RequestQueried{Newest: 9})
	s.actor.Tell(cycle(q, record(4, "")))
	s.actor.Tell(s.found(q, nil, 0, record(4, "")))
	s.actor.Tell(s.found(q, nil, 0))
	s.admin.Got(messages.RecordsAnswered{Records: messages.ListOf(record(4, ""))})
}

func TestShardThatDiesWithItsCyclesMakesItPartial(t *testing.T) {
	s := newScene(t)
	q := s.ask(messages.RequestQueried{Newest: 9})
	s.actor.Tell(s.found(q, nil, 0, record(3, "")))
	s.shards[1].Close()
	s.actor.Tell(s.found(q, ids{4}, 0))
	s.admin.Got(messages.RecordsAnswered{Records: messages.ListOf(record(3, "")), Partial: true})
}

func TestOnlyRecordsThatAreMeantAreListed(t *testing.T) {
	s := newScene(t)
	q := s.ask(messages.RequestQueried{Newest: 2, Filter: messages.RecordFilter{Model: "a"}})
	of := func(id messages.RequestID, model string) messages.Record {
		return messages.Record{Request: id, Model: model}
	}
	s.actor.Tell(messages.RecordsFound{Query: q, Shard: s.shards[1], Asked: messages.ListOf(ids{7, 8, 9}...),
		Unasked: 3, Records: messages.ListOf(of(1, "a"), of(2, "a"))})
	s.missed(q, 7, 8, 9)
	s.actor.Tell(cycle(q, of(9, "b"))) // cycles answer without a look at the filter
	s.actor.Tell(cycle(q, of(8, "a")))
	s.actor.Tell(messages.MissedFound{Query: q, Shard: s.shards[1], Records: messages.ListOf(of(7, "b"))})
	s.actor.Tell(messages.RecordsFound{Query: q, Shard: s.shards[0], Unasked: 4})
	s.admin.Got(messages.RecordsAnswered{Records: messages.ListOf(of(8, "a"), of(2, "a")), Unasked: 7})
}
