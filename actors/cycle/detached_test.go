package cycle_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime/runtimetest"
	"github.com/signalbox-epp/signalbox/messages"
)

// outlived returns a detached scene whose stream is gone after the response's headers.
func outlived(t *testing.T) *scene {
	t.Helper()
	s := serving(t)
	s.cycle.Tell(messages.ResponseStarted{Status: 200})
	s.prefix.Got(messages.PromptServed{Request: 7, Endpoint: first})
	s.cycle.Tell(messages.StreamGone{Completed: true, Logged: true, Log: messages.LogSeen})
	s.load(1, 0)
	return s
}

func TestResponseOutlivesItsStream(t *testing.T) {
	s := outlived(t)
	s.cycle.Advance(logLimit - 1)
	s.load(1, 0)
	s.cycle.Tell(messages.ResponseEnded{ResponseBytes: 400, Logged: messages.Logged{
		// The stream saw which endpoint served: what the log names does not change it.
		Status: 200, Served: addresses[second], Headers: 20 * time.Millisecond, FirstToken: 30 * time.Millisecond,
	}})
	s.prefix.Got(messages.PromptEnded{Request: 7})
	r := s.over(messages.NoReason)
	if r.Headers != 20*time.Millisecond || r.FirstToken != 30*time.Millisecond || !r.Bypassed ||
		r.ResponseBytes != 400 || r.Status != 200 ||
		r.Served != first || r.Usage != (messages.Usage{Source: messages.UsageNotEstimable}) {
		t.Errorf("record %+v", r)
	}
	s.stream.Got()
}

// The proxy's clock starts when the first byte of the request came, before its headers reach the cycle.
func TestNothingComesAfterTheEnd(t *testing.T) {
	s := outlived(t)
	s.cycle.Advance(time.Second)
	s.cycle.Tell(messages.ResponseEnded{ResponseBytes: 400, Logged: messages.Logged{
		Status: 200, Served: addresses[second], Headers: 1003 * time.Millisecond, FirstToken: 1004 * time.Millisecond,
	}})
	if r := s.over(messages.NoReason); r.Ended != r.FirstToken || r.FirstToken != 1004*time.Millisecond {
		t.Errorf("headers after %v, first token after %v, end after %v", r.Headers, r.FirstToken, r.Ended)
	}
}

func TestAccessLogKnowsWhatTheStreamDidNotSee(t *testing.T) {
	for name, c := range map[string]struct {
		logged messages.Logged
		why    messages.Reason
		failed bool
		served messages.EndpointID
	}{
		"headers skipped": {
			messages.Logged{Status: 200, Served: addresses[second], Headers: 1}, messages.NoReason, false, second,
		},
		"the client left": {
			messages.Logged{Status: 200, Served: addresses[first], Headers: 1, ClientLeft: true}, messages.ClientGone,
			true, first,
		},
		"the server broke off": {
			messages.Logged{Status: 200, Served: addresses[first], Broken: true}, messages.ServerGone, true, first,
		},
		"no server answered": {messages.Logged{Status: 503, Broken: true}, messages.ServerGone, true, first},
		"never sent":         {messages.Logged{ClientLeft: true}, messages.ClientGone, true, first},
	} {
		t.Run(name, func(t *testing.T) {
			s := serving(t)
			s.cycle.Tell(messages.StreamGone{Logged: true, Log: messages.LogSeen})
			s.cycle.Tell(messages.ResponseEnded{Logged: c.logged})
			told := s.prefix.Told()
			if last := told[len(told)-1]; last != (messages.PromptEnded{Request: 7, Failed: c.failed}) {
				t.Errorf("prefix was told %+v at the end", last)
			}
			status := c.logged.Status
			if c.logged.ClientLeft { // with nothing of the response
				status = 0
			}
			if r := s.over(c.why); r.Served != c.served || r.Status != status {
				t.Errorf("record %+v, want served by %v, status %d", r, c.served, status)
			}
		})
	}
}

func TestEntryThatNeverComesIsCounted(t *testing.T) {
	s := outlived(t)
	s.cycle.Tell(messages.Revoked{Reason: messages.NoCapacity}) // there is no stream that could be told
	s.load(1, 0)
	s.cycle.Advance(logLimit)
	if r := s.over(messages.Lost); r.Status != 0 || r.Served != first {
		t.Errorf("record %+v, want no status, served by %v", r, first)
	}
	s.stream.Got()
	if n := s.metric("signalbox_unlogged_total"); n != 1 {
		t.Errorf("%v counted, want 1", n)
	}
}

func TestStreamThatGoesBeforeThePickIsNotOutlived(t *testing.T) {
	s := waiting(t)
	s.cycle.Tell(messages.StreamGone{Logged: true, Log: messages.LogSeen})
	s.over(messages.ClientGone)
}

// A stream that ends before the response began is most often that of a client that left; its entry may lack our id.
func TestRequestThatEndsBeforeItsResponseWaitsAMoment(t *testing.T) {
	s := serving(t)
	s.cycle.Tell(messages.StreamGone{Logged: true, Log: messages.LogSeen})
	s.cycle.Advance(time.Second - 1)
	s.load(1, 0)
	s.cycle.Advance(1)
	s.over(messages.ClientGone)
	if n := s.metric("signalbox_unlogged_total"); n != 0 {
		t.Errorf("%v counted, want 0", n)
	}
}

func TestWholeRequestsDeadlineEndsWithTheStream(t *testing.T) {
	s := newScene(t)
	s.ready(time.Minute)
	s.arrive()
	s.stream.Told()
	s.prefix.Told()
	s.cycle.Tell(messages.ResponseStarted{Status: 200})
	s.cycle.Tell(messages.StreamGone{Logged: true, Log: messages.LogSeen})
	s.cycle.Advance(logLimit - 1)
	s.load(1, 0)
	s.cycle.Advance(1)
	s.over(messages.Lost)
}

// The log says every few seconds how far a response has come. If it has no bytes, its server is silent.
func TestSilenceOfAnOutlivedResponseIsAFailure(t *testing.T) {
	silent := []messages.OutlierMsg{seen(first, messages.NoFirstToken)}
	ongoing := func(n int64) messages.CycleMsg { return messages.ResponseOngoing{ResponseBytes: n} }
	ended := func(l messages.Logged, n int64) messages.CycleMsg {
		l.Status, l.Served = 200, addresses[first]
		return messages.ResponseEnded{ResponseBytes: n, Logged: l}
	}
	left := messages.Logged{ClientLeft: true}
	for name, c := range map[string]struct {
		after time.Duration
		then  []messages.CycleMsg
		want  []messages.OutlierMsg
	}{
		"not yet":                 {tokenLimit - 1, []messages.CycleMsg{ongoing(0)}, nil},
		"for too long, told once": {tokenLimit, []messages.CycleMsg{ongoing(0), ongoing(0), ended(left, 0)}, silent},
		"bytes came":              {tokenLimit, []messages.CycleMsg{ongoing(1), ended(left, 1)}, nil},
		"the client had enough":   {tokenLimit, []messages.CycleMsg{ended(left, 0)}, silent},
		"the client left sooner": {
			tokenLimit - 1, []messages.CycleMsg{ended(left, 0)},
			[]messages.OutlierMsg{seen(first, messages.ClientsLeft)},
		},
		"the client left an answer": {tokenLimit, []messages.CycleMsg{ended(left, 9)}, nil},
		"an empty answer":           {tokenLimit, []messages.CycleMsg{ended(messages.Logged{}, 0)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := outlived(t)
			s.cycle.Advance(c.after)
			for _, m := range c.then {
				s.cycle.Tell(m)
			}
			s.outlier.Got(c.want...)
		})
	}
}

// Some logs have no entries while responses run. Without the headers as proof, an ejected endpoint would stay half-open
// for as long as its answer takes.
func TestHeadersDoForAnAnswerIfTheLogIsSilent(t *testing.T) {
	for name, heard := range map[string]bool{"silent": false, "it speaks": true} {
		t.Run(name, func(t *testing.T) {
			s := outlived(t)
			if heard {
				s.cycle.Tell(messages.ResponseOngoing{})
			}
			s.cycle.Advance(tokenLimit)
			if got := s.pool.Snapshot().Endpoints[0].Answers().Proved != (time.Time{}); got == heard {
				t.Errorf("noted as well: %v", got)
			}
			s.load(1, 0)
		})
	}
}

// Entries of a response that runs put its deadline off; when they stop coming, its proxy is gone, and its load with
// it.
func TestLoadEndsWithTheProxy(t *testing.T) {
	s := outlived(t)
	s.cycle.Advance(logLimit - 1)
	for range 9 {
		s.cycle.Tell(messages.ResponseOngoing{ResponseBytes: 1})
		s.cycle.Advance(5 * time.Second)
	}
	s.cycle.Advance(15*time.Second - 1)
	s.load(1, 0)
	s.cycle.Advance(1)
	s.over(messages.Lost)
	if n := s.metric("signalbox_unlogged_total"); n != 1 {
		t.Errorf("%v counted, want 1", n)
	}
}

// A proxy's log ended. Requests of other proxies have an entry within five seconds.
func TestLoadEndsWithTheLog(t *testing.T) {
	s := outlived(t)
	s.cycle.Tell(messages.EntriesDoubted{})
	s.cycle.Advance(8*time.Second - 1)
	s.load(1, 0)
	s.cycle.Advance(1)
	s.over(messages.Lost)

	s = outlived(t)
	s.cycle.Tell(messages.EntriesDoubted{})
	s.cycle.Advance(5 * time.Second)
	s.cycle.Tell(messages.ResponseOngoing{ResponseBytes: 1})
	s.cycle.Advance(logLimit - 1)
	s.load(1, 0)

	s = serving(t) // its stream lives
	s.cycle.Tell(messages.EntriesDoubted{})
	s.cycle.Advance(tokenLimit - 1)
	s.load(1, 0)
}

// lingers returns a scene whose stream is gone after the response's headers, and whose proxy has not sent an entry so
// far. Nothing is in flight.
func lingers(t *testing.T) *scene {
	t.Helper()
	s := serving(t)
	s.cycle.Tell(messages.ResponseStarted{Status: 200, Bypasses: true})
	s.prefix.Got(messages.PromptServed{Request: 7, Endpoint: first})
	s.cycle.Advance(time.Second)
	s.cycle.Tell(messages.StreamGone{Completed: true, Logged: true, Log: messages.LogAwaited})
	s.inFlight(0)
	return s
}

// inFlight checks every place where requests in flight are counted: load, metrics, and what a drain waits for.
func (s *scene) inFlight(want int) {
	s.Helper()
	s.load(want, 0)
	if n := s.metric("llm_d_epp_request_running"); n != float64(want) {
		s.Errorf("%v requests run, want %d", n, want)
	}
	if n := s.metric("signalbox_outlived_requests"); n != float64(want) {
		s.Errorf("%v requests outlive their stream, want %d", n, want)
	}
}

// A proxy that has never sent an entry may have no access log: its requests are no load once their stream is gone. The
// record waits for an entry, and has the time of the stream's end if none comes.
func TestLoadEndsWithTheStreamUntilTheProxyHasSentAnEntry(t *testing.T) {
	s := lingers(t)
	s.cycle.Advance(10*time.Second - 1)
	if s.cycle.Ended() {
		t.Fatal("the record does not wait for an entry")
	}
	s.cycle.Advance(1)
	s.inFlight(0)
	if r := s.recorded(messages.NoReason); r.Ended != time.Second || r.Status != 200 || r.Served != first {
		t.Errorf("record %+v, want the end of its stream", r)
	}
	if n := s.metric("signalbox_unlogged_total"); n != 1 {
		t.Errorf("%v counted, want 1", n)
	}
	if s.pool.Snapshot().Endpoints[0].Answers().Proved.IsZero() {
		t.Error("the answer's headers are no proof, though nothing else will come")
	}
	s.prefix.Got(messages.PromptEnded{Request: 7})
}

// The first entry of a proxy tells the end of a request that lingers, as if it had been load all the time.
func TestEntryOfTheEndReachesARequestThatLingers(t *testing.T) {
	s := lingers(t)
	s.cycle.Advance(3 * time.Second)
	s.cycle.Tell(messages.ResponseEnded{
		ResponseBytes: 400,
		Logged:        messages.Logged{Status: 200, Served: addresses[first], FirstToken: 30 * time.Millisecond},
	})
	s.inFlight(0)
	if r := s.recorded(messages.NoReason); r.Ended != 4*time.Second || r.FirstToken != 30*time.Millisecond ||
		r.ResponseBytes != 400 {
		t.Errorf("record %+v", r)
	}
	if n := s.metric("signalbox_unlogged_total"); n != 0 {
		t.Errorf("%v counted, want 0", n)
	}
}

// An entry that says that a request runs makes it load again.
func TestRequestThatLingersIsLoadAgainOnceItsProxySpeaks(t *testing.T) {
	s := lingers(t)
	s.cycle.Advance(5 * time.Second)
	s.cycle.Tell(messages.ResponseOngoing{ResponseBytes: 1})
	s.inFlight(1)
	s.cycle.Advance(time.Minute)
	s.inFlight(1)
	s.cycle.Tell(messages.ResponseOngoing{ResponseBytes: 2})
	s.cycle.Tell(messages.ResponseEnded{
		ResponseBytes: 400, Logged: messages.Logged{Status: 200, Served: addresses[first], FirstToken: 1},
	})
	s.inFlight(0)
	if r := s.recorded(messages.NoReason); r.Ended != 66*time.Second {
		t.Errorf("it took %v, want 1m6s", r.Ended)
	}
}

// What an entry tells of a failure or of the endpoint that served still counts, though the request no longer holds
// load.
func TestEntryMovesARequestThatLingers(t *testing.T) {
	s := serving(t)
	s.cycle.Tell(messages.StreamGone{Logged: true, Log: messages.LogAwaited}) // its response's headers are not shown
	s.inFlight(0)
	s.cycle.Tell(messages.ResponseEnded{Logged: messages.Logged{Status: 200, Served: addresses[second], FirstToken: 1}})
	s.outlier.Got(seen(first, messages.ServedElsewhere))
	s.inFlight(0)
	if r := s.recorded(messages.NoReason); r.Served != second {
		t.Errorf("served by %v, want %v", r.Served, second)
	}
}

// The cycle waits for no entry of a proxy that is known to send none.
func TestRequestEndsWithItsStreamWhereNoLogComes(t *testing.T) {
	for name, c := range map[string]struct {
		started messages.CycleMsg
		why     messages.Reason
		want    []messages.OutlierMsg
	}{
		"after the headers": {messages.ResponseStarted{Status: 200, Bypasses: true}, messages.NoReason, nil},
		"before the response": {
			messages.CycleQueried{Recorder: runtimetest.NewProbe[messages.RecorderMsg](t)}, messages.ClientGone,
			[]messages.OutlierMsg{seen(first, messages.ClientsLeft)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serving(t)
			s.cycle.Tell(c.started)
			s.cycle.Tell(messages.StreamGone{Completed: true, Logged: true, Log: messages.LogMissing})
			s.over(c.why)
			s.inFlight(0)
			s.outlier.Got(c.want...)
		})
	}
}

// An entry that came while the stream lived proves that there is a log.
func TestEntryBeforeTheStreamsEndProvesTheLog(t *testing.T) {
	s := serving(t)
	s.cycle.Tell(messages.ResponseStarted{Status: 200, Bypasses: true})
	s.cycle.Tell(messages.ResponseOngoing{ResponseBytes: 1})
	s.cycle.Tell(messages.StreamGone{Completed: true, Logged: true, Log: messages.LogAwaited})
	s.inFlight(1)
}

// The end of a connection puts only its own requests in doubt.
func TestLoadEndsWithTheConnection(t *testing.T) {
	s := outlived(t)
	s.cycle.Tell(messages.EntriesDoubted{Connection: 2})
	s.cycle.Advance(8 * time.Second)
	s.inFlight(1)
	s.cycle.Tell(messages.EntriesDoubted{Connection: 1})
	s.cycle.Advance(8*time.Second - 1)
	s.inFlight(1)
	s.cycle.Advance(1)
	s.over(messages.Lost)
	s.inFlight(0)

	s = lingers(t) // it waits for less than the doubt would take, or as long
	s.cycle.Tell(messages.EntriesDoubted{Connection: 1})
	s.cycle.Advance(8 * time.Second)
	s.recorded(messages.NoReason)
	s.inFlight(0)
}

// A shutdown ends a request that lingers with its stream, too.
func TestShutdownOfARequestThatLingers(t *testing.T) {
	s := lingers(t)
	s.cycle.Advance(time.Second)
	s.cycle.Stop()
	if r := s.recorded(messages.NoReason); r.Ended != time.Second {
		t.Errorf("it took %v, want 1s", r.Ended)
	}
	s.inFlight(0)
}

// What the stream sees is newer than what the log says.
func TestLogIsNotHeardWhileTheStreamLives(t *testing.T) {
	s := serving(t)
	s.cycle.Tell(messages.ResponseStarted{Status: 200})
	s.cycle.Advance(tokenLimit - 1)
	s.cycle.Tell(messages.ResponseOngoing{ResponseBytes: 1})
	s.cycle.Advance(1)
	s.outlier.Got(seen(first, messages.NoFirstToken))
}

// A proxy may keep the stream open although it does not show the response's body. That is no silence, and the deadline
// of the request does not count.
func TestBypassingResponseIsNotCut(t *testing.T) {
	s := serving(t)
	s.cycle.Tell(messages.ResponseStarted{Status: 200, Bypasses: true})
	s.cycle.Advance(idleLimit + tokenLimit)
	s.outlier.Got()
	s.stream.Got()
	s.cycle.Tell(messages.StreamGone{Completed: true, Logged: true, Log: messages.LogSeen})
	s.load(1, 0)
	s.cycle.Tell(messages.ResponseEnded{
		ResponseBytes: 9, Logged: messages.Logged{Status: 200, Served: addresses[first], Headers: 1},
	})
	s.over(messages.NoReason)
}

// Nothing tells how a detached request goes on that a shutdown ends, for its client gets its answer without us.
func TestShutdownOfAnOutlivedResponse(t *testing.T) {
	s := outlived(t)
	s.cycle.Stop()
	s.over(messages.Lost)
	if n := s.metric("signalbox_unlogged_total"); n != 1 {
		t.Errorf("%v counted, want 1", n)
	}
}

// A prompt that was served stays in the index though nothing told how its answer ended.
func TestLostEntryIsNoFailureOfThePrompt(t *testing.T) {
	s := outlived(t)
	s.cycle.Advance(tokenLimit)
	s.cycle.Advance(logLimit)
	s.prefix.Got(messages.PromptEnded{Request: 7})
}

// If the proxy does not say when the body began, the record has no first token: the headers' time does not replace it.
func TestHeadersAreNoFirstToken(t *testing.T) {
	s := outlived(t)
	s.cycle.Tell(messages.ResponseEnded{
		ResponseBytes: 400,
		Logged:        messages.Logged{Status: 200, Served: addresses[first], Headers: 20 * time.Millisecond},
	})
	if r := s.over(messages.NoReason); r.Headers != 20*time.Millisecond || r.FirstToken != 0 {
		t.Errorf("headers after %v, first token after %v; want 20ms and none", r.Headers, r.FirstToken)
	}
	if n := s.metric("llm_d_epp_request_ttft_seconds"); n != 0 {
		t.Errorf("%v times to the first token were observed, want none", n)
	}
}

// A doubt may come after the stream has looked at the log and before the stream ends. It counts from its own time on,
// unless it is old, or an entry has come since.
func TestDoubtThatCrossesTheStreamsEnd(t *testing.T) {
	type told = []messages.CycleMsg
	mine, others := messages.EntriesDoubted{Connection: 1}, messages.EntriesDoubted{Connection: 2}
	for name, c := range map[string]struct {
		told told
		then time.Duration
		ends bool
	}{
		"of some log":                  {told{messages.EntriesDoubted{}}, 0, true},
		"of its connection":            {told{mine}, 8*time.Second - 1, true},
		"of another connection":        {told{others}, 0, false},
		"older than what was seen":     {told{mine}, 8 * time.Second, false},
		"an entry has come since":      {told{mine, messages.ResponseOngoing{ResponseBytes: 1}}, 0, false},
		"an entry had come before it":  {told{messages.ResponseOngoing{ResponseBytes: 1}, mine}, 0, true},
		"another's came after its own": {told{mine, others}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := serving(t)
			s.cycle.Tell(messages.ResponseStarted{Status: 200})
			for _, m := range c.told {
				s.cycle.Tell(m)
			}
			s.cycle.Advance(c.then)
			s.cycle.Tell(messages.StreamGone{Completed: true, Logged: true, Log: messages.LogSeen})
			s.cycle.Advance(8*time.Second - 1)
			s.inFlight(1)
			s.cycle.Advance(1)
			if s.cycle.Ended() != c.ends {
				t.Errorf("ended %t, want %t", !c.ends, c.ends)
			}
		})
	}
}
