package records

import (
	"strconv"
	"testing"

	"github.com/signalbox-epp/signalbox/messages"
)

func full(model string, bytes int64, tokens int) *messages.Record {
	return &messages.Record{Model: model, Status: 200, ResponseBytes: bytes, Usage: messages.Usage{OutputTokens: tokens}}
}

func TestEstimatesFollowTheModel(t *testing.T) {
	e := NewEstimates()
	if got := e.Usage(full("m", 1000, 0)); got != (messages.Usage{}) {
		t.Errorf("a model that was never seen is estimated: %+v", got)
	}
	for range 100 {
		e.Learn(full("m", 400, 100))
		e.Learn(full("n", 400, 10))
	}
	streamed := full("m", 20_000, 100)
	streamed.Stream = true
	e.Learn(streamed)
	for _, c := range []struct {
		model  string
		stream bool
		bytes  int64
		want   int
	}{{"m", false, 400, 100}, {"n", false, 400, 10}, {"m", true, 400, 2}, {"m", false, 1, 1}, {"m", false, 0, 0}, {"o", false, 400, 0}} {
		got := e.Usage(&messages.Record{Model: c.model, Stream: c.stream, ResponseBytes: c.bytes})
		if want := (messages.Usage{OutputTokens: c.want, Estimated: c.want > 0}); got != want {
			t.Errorf("%+v: got %+v, want %+v", c, got, want)
		}
	}
	for range 200 {
		e.Learn(full("m", 4000, 100))
	}
	if got := e.Usage(full("m", 4000, 0)).OutputTokens; got < 99 || got > 101 {
		t.Errorf("after a change of the model's ways: %d tokens, want about 100", got)
	}
}

func TestEstimatesLearnOnlyFromWholeAnswers(t *testing.T) {
	e := NewEstimates()
	for _, spoil := range []func(*messages.Record){
		func(r *messages.Record) { r.Usage.Estimated = true },
		func(r *messages.Record) { r.Usage.OutputTokens = 0 },
		func(r *messages.Record) { r.ResponseBytes = 0 },
		func(r *messages.Record) { r.Status = 500 },
		func(r *messages.Record) { r.Reason = messages.ClientGone },
	} {
		r := full("m", 100, 10)
		spoil(r)
		e.Learn(r)
	}
	if got := e.Usage(full("m", 100, 0)); got != (messages.Usage{}) {
		t.Errorf("learned %+v", got)
	}
}

func TestEstimatesAreBounded(t *testing.T) {
	e := NewEstimates()
	for n := range 3 * maxEstimates {
		e.Learn(full(strconv.Itoa(n), 100, 10))
	}
	if len(e.means) > maxEstimates {
		t.Errorf("%d kept, want at most %d", len(e.means), maxEstimates)
	}
}
