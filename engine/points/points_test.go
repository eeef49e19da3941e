package points_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/engine/points"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/schedule/scheduletest"
	"github.com/signalbox-epp/signalbox/engine/scorers"
	"github.com/signalbox-epp/signalbox/messages"
)

// holding returns endpoints that hold so many of the four blocks of the prompt, without load.
func holding(blocks ...int) (all []scheduletest.Endpoint) {
	for _, n := range blocks {
		all = append(all, scheduletest.Endpoint{PrefixBlocks: n})
	}
	return all
}

// Endpoints score by the label that an attribute stands for, not by one that has the attribute's name.
func TestLabelProducerNamesLabels(t *testing.T) {
	producer := points.Types["label-producer"]().(*points.LabelProducer)
	producer.Labels = []points.NamedLabel{{Label: "zone", AttributeKey: "rack"},
		{Label: "topology.kubernetes.io/region", AttributeKey: "region"}}
	s := scorers.Types["endpoint-attribute-weight-scorer"]().(*scorers.EndpointAttributeWeight)
	s.AttributeKey, s.Weights = "region", map[string]float64{"eu": 8, "us": 2}
	if err := s.Refer(func(string, string) any { return producer }); err != nil {
		t.Fatal(err)
	}
	region := func(of string) scheduletest.Endpoint {
		return scheduletest.Endpoint{Labels: map[string]string{
			"topology.kubernetes.io/region": of, "zone": "eu", "region": "eu", "rack": "eu"}}
	}
	got := make([]float32, 3)
	scheduletest.Show(t, s, scheduletest.Request(), func(in *schedule.Input) { s.Score(in, got) },
		region("us"), region("eu"), region("asia"))
	if want := []float32{0.25, 1, 0.25}; !slices.Equal(got, want) {
		t.Errorf("Score = %v, want %v", got, want)
	}
}

// TestCacheSource: the first endpoint serves, and the second one reads the prompt if there is a profile for that.
func TestCacheSource(t *testing.T) {
	delta := func(tokens int) func(*points.CacheSource) {
		return func(s *points.CacheSource) { s.MinCachedTokenDelta = tokens }
	}
	ejected := holding(0, 0, 4)
	ejected[2].Outlier = &outlier.Status{Ejected: true}
	for name, c := range map[string]struct {
		change  func(*points.CacheSource)
		prefill bool
		all     []scheduletest.Endpoint
		want    string // "" = none
	}{
		"holds more":             {nil, false, holding(1, 0, 4), "10.0.0.2:80"},
		"holds as much":          {nil, false, holding(4, 0, 4), ""},
		"none holds any":         {nil, false, holding(0, 0, 0), ""},
		"too little more":        {delta(129), false, holding(0, 0, 2), ""},
		"just enough more":       {delta(128), false, holding(0, 0, 2), "10.0.0.2:80"},
		"ejected":                {nil, false, ejected, ""},
		"for the prefill server": {nil, true, holding(0, 3, 4), "10.0.0.2:80"},
		"the server that serves": {nil, true, holding(4, 0, 1), "10.0.0.0:80"},
		"prefill holds as much":  {nil, true, holding(0, 4, 4), ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := points.Types["p2p-source-producer"]().(*points.CacheSource)
			if c.change != nil {
				c.change(s)
			}
			profiles := []scheduletest.Profile{{Name: "decode", Ranks: []int{0}}}
			if c.prefill {
				profiles = append(profiles, scheduletest.Profile{Name: "prefill", Ranks: []int{1}})
			}
			out := scheduletest.NewSeries(t, s, profiles...).Pick(scheduletest.Request(), c.all...)
			got := ""
			for _, h := range out.Decision.Headers.All() {
				got += h.Value
				if h.Name != messages.CacheSourceHeader {
					t.Errorf("it set %s", h.Name)
				}
			}
			if got != c.want {
				t.Errorf("got source %q, want %q", got, c.want)
			}
		})
	}
}

// Of two sources that hold as much, or one block less, the one with less load is drawn more often.
func TestCacheSourceSpreads(t *testing.T) {
	all := holding(0, 4, 3, 2)
	all[1].Inflight = 3 // a quarter of the weight of one without load
	s := scheduletest.NewSeries(t, points.Types["p2p-source-producer"](),
		scheduletest.Profile{Name: "decode", Ranks: []int{0}})
	drawn := map[string]int{}
	const n = 2000
	for range n {
		out := s.Pick(scheduletest.Request(), all...)
		drawn[out.Decision.Headers.At(0).Value]++
	}
	if busy, idle := drawn["10.0.0.1:80"], drawn["10.0.0.2:80"]; busy+idle != n || busy < n/7 || busy > n/4 {
		t.Errorf("drawn were %v, want a fifth of %d from the busy one", drawn, n)
	}
}

// request has headers by their slots.
type request []string

func (r request) Header(of attributes.HeaderSlot) (string, bool) {
	return r[of.Index()], r[of.Index()] != ""
}

func TestSessionsAreFound(t *testing.T) {
	const agents = "[x-mine x-claude-code-session-id x-session-affinity session-id session_id]"
	agent := points.Types["agent-identity"]().(*points.AgentIdentity)
	agent.AdditionalSessionHeaders = []string{"X-Mine"}
	agent.Adapt()
	for name, c := range map[string]struct {
		plugin interface {
			schedule.Reader
			Session(of points.Request) string
		}
		headers string // that it reads
		has     request
		want    string
	}{
		"agent, mine":  {agent, agents, request{"a", "b", "", "", "c"}, "a"},
		"agent, third": {agent, agents, request{"", "", "", "c", "d"}, "c"},
		"agent, last":  {agent, agents, request{"", "", "", "", "e"}, "e"},
		"agent, none":  {agent, agents, request{"", "", "", "", ""}, ""},
		"header":       {&points.SessionID{HeaderName: "X-Sid"}, "[x-sid]", request{"a"}, "a"},
		"cookie":       {&points.SessionID{CookieName: "Sid"}, "[cookie=Sid]", request{"a"}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			var b attributes.Binding
			c.plugin.Declare(b.Reader("plugin"))
			layout, faults := b.Layout()
			if len(faults) > 0 || fmt.Sprint(layout.Headers()) != c.headers {
				t.Errorf("it reads %v, want %s; %v", layout.Headers(), c.headers, faults)
			}
			if got := c.plugin.Session(c.has); got != c.want {
				t.Errorf("got %q of %v, want %q", got, c.has, c.want)
			}
		})
	}
}

func TestPointsRefuseParameters(t *testing.T) {
	for name, c := range map[string]struct {
		plugin interface{ Validate() error }
		want   string
	}{
		"source": {new(points.CacheSource), "minCachedTokenDelta: got 0, want 1 or more\n" +
			"prefillProfileName: missing; name a profile"},
		"agent": {&points.AgentIdentity{AdditionalSessionHeaders: []string{"ok", "x a"}},
			"additionalSessionHeaders[1]: got \"x a\", want the name of a header"},
		"session, none": {new(points.SessionID), "headerName: missing, and so is cookieName; want one of them"},
		"session, both": {&points.SessionID{HeaderName: "a", CookieName: "b"},
			"cookieName: stands beside headerName, want one of them"},
		"cookie": {&points.SessionID{CookieName: "a=b"}, "cookieName: got \"a=b\", want the name of a cookie"},
		"labels": {&points.LabelProducer{Labels: []points.NamedLabel{{"", "a"}, {"b", "a"}, {"c", ""}}},
			"labels[0].label: missing\nlabels[1].attributeKey: stands twice\nlabels[2].attributeKey: missing"},
		"no labels": {new(points.LabelProducer), "labels: got none, want at least one"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fmt.Sprint(c.plugin.Validate()); got != c.want {
				t.Errorf("Validate(%+v) = %s, want %s", c.plugin, got, c.want)
			}
		})
	}
}
