package conformance

import (
	"context"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/structpb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestARightEPPPasses is what gives the planted faults their meaning.
func TestARightEPPPasses(t *testing.T) {
	o := scripted(t, nil, habits{})
	o.Inside.Heap = heapInUse
	results, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Outcome != Passed {
			t.Error(r.Line())
		}
	}
	names, scores := Scores(results)
	if names[len(names)-1] != "all" || scores["all"].Passed < 900 || scores["all"].NotRun != 0 {
		t.Errorf("scores: %v", scores["all"])
	}
}

func TestTable(t *testing.T) {
	for i, c := range Table() {
		if c.Number != i+1 || c.Name == "" || c.Sends == "" || c.Wants == "" || len(c.Modes()) == 0 {
			t.Errorf("row %d is %+v", i+1, c)
		}
	}
	if n := len(Table()); n != 68 {
		t.Errorf("%d rows, want 68", n)
	}
	for _, m := range AllModes() {
		c := checkRun{runner: &runner{}, modes: m}
		if err := c.config().Validate(); err != nil {
			t.Errorf("%s: Envoy refuses it: %v", m.Name, err)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	good := scripted(t, nil, habits{})
	for name, change := range map[string]func(*Options){
		"no client":     func(o *Options) { o.Client = nil },
		"no endpoint":   func(o *Options) { o.Endpoints = nil },
		"a host name":   func(o *Options) { o.Endpoints = []string{"localhost:80"} },
		"unknown modes": func(o *Options) { o.Modes = []string{"LOUD"} },
	} {
		o := good
		change(&o)
		if _, err := Run(context.Background(), o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestInterruptedRunsSayWhatWasNotRun(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	results, err := Run(ctx, scripted(t, nil, habits{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Outcome != NotRun {
			t.Errorf("%s, but nothing could run", r.Line())
		}
	}
}

// Scores are the EPP's to give, in a struct of numbers by endpoint.
func TestScoresInTheMetadata(t *testing.T) {
	number, text := structpb.NewNumberValue(.5), structpb.NewStringValue("0.5")
	for name, c := range map[string]struct {
		scores *structpb.Value
		want   Outcome
	}{
		"numbers":     {scored(pool[0], number), Passed},
		"texts":       {scored(pool[0], text), Failed},
		"by name":     {scored("server-a", number), Failed},
		"no struct":   {number, Failed},
		"no endpoint": {scored("", nil), Passed},
	} {
		o := scripted(t, picks(func(_ *session, m *answer, _ *extprocv3.CommonResponse) {
			m.DynamicMetadata.Fields[lbNamespace].GetStructValue().Fields[scoresKey] = c.scores
		}), habits{})
		o.Modes, o.Checks = []string{fds}, []int{65}
		results, err := Run(t.Context(), o)
		if err != nil || len(results) != 1 || results[0].Outcome != c.want {
			t.Errorf("%s: got %v, %v; want %v", name, results, err, c.want)
		}
	}
}

func scored(endpoint string, score *structpb.Value) *structpb.Value {
	s := &structpb.Struct{}
	if endpoint != "" {
		s.Fields = map[string]*structpb.Value{endpoint: score}
	}
	return structpb.NewStructValue(s)
}
