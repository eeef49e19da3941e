package sessions_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/filters"
	"github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/engine/schedule/scheduletest"
	"github.com/signalbox-epp/signalbox/engine/scorers"
	"github.com/signalbox-epp/signalbox/engine/sessions"
	"github.com/signalbox-epp/signalbox/messages"
)

// plugins returns both plugins that know sessions by their ids, which come in these headers.
func plugins(profile string, headers ...string) map[string]any {
	list := make([]sessions.Source, 0, len(headers))
	for _, h := range headers {
		list = append(list, sessions.Source{Header: h})
	}
	set := func(a *sessions.Affinity) {
		a.Strategy, a.SessionIDConfig.Sources, a.ProfileName = "session_id", list, profile
	}
	filter := filters.Types["session-affinity-filter"]().(*filters.SessionAffinity)
	scorer := scorers.Types["session-affinity-scorer"]().(*scorers.SessionAffinity)
	set(&filter.Affinity)
	set(&scorer.Affinity)
	return map[string]any{"filter": filter, "scorer": scorer}
}

// request has these values of the headers that the plugin declares; "" = the request lacks the header.
func request(values ...string) *messages.Request {
	list := make([]messages.HeaderValue, 0, len(values))
	for _, v := range values {
		list = append(list, messages.HeaderValue{Text: v, Given: v != ""})
	}
	return &messages.Request{ID: 1, Headers: messages.TakeList(list)}
}

// pick is one request of a series: what it brings, where it could go, and where it must.
type pick struct {
	values []string
	from   int // the first endpoint that is left
	to     int // so many endpoints there are
	want   uint32
	after  time.Duration // the pick before
}

func TestSessionsStay(t *testing.T) {
	for name, c := range map[string]struct {
		headers []string
		picks   []pick
	}{
		"at the server of the first request": {nil, []pick{
			{values: []string{"a"}, from: 2, to: 3, want: 2}, {values: []string{"a"}, to: 3, want: 2},
			{values: []string{"a"}, to: 3, want: 2}, {values: []string{"b"}, to: 3, want: 0},
		}},
		"and move if it leaves": {nil, []pick{
			{values: []string{"a"}, from: 2, to: 3, want: 2}, {values: []string{"a"}, to: 2, want: 0},
			{values: []string{"a"}, to: 3, want: 0},
		}},
		"each by its first id": {[]string{"x-session-id", "x-agent"}, []pick{
			{values: []string{"a", "x"}, from: 2, to: 3, want: 2}, {values: []string{"", "x"}, from: 1, to: 3, want: 1},
			{values: []string{"a", "x"}, to: 3, want: 2}, {values: []string{"", "x"}, to: 3, want: 1},
			{values: []string{"", "a"}, to: 3, want: 2},
		}},
		"not without an id": {nil, []pick{
			{values: []string{""}, from: 2, to: 3, want: 2}, {values: []string{""}, to: 3, want: 0},
		}},
		"for a time": {nil, []pick{
			{values: []string{"a"}, from: 2, to: 3, want: 2},
			{values: []string{"a"}, to: 3, want: 2, after: 5 * time.Minute},
			{values: []string{"a"}, to: 3, want: 2, after: 5 * time.Minute},
			{values: []string{"a"}, to: 3, want: 0, after: 5*time.Minute + 1},
		}},
	} {
		for kind, plugin := range plugins("", c.headers...) {
			t.Run(kind+" "+name, func(t *testing.T) {
				s := scheduletest.NewSeries(t, plugin, scheduletest.Profile{Name: "default"})
				for i, p := range c.picks {
					s.Now, s.Profiles[0].Ranks = s.Now.Add(p.after), between(p.from, p.to)
					out := s.Pick(request(p.values...), make([]scheduletest.Endpoint, p.to)...)
					if got := out.Ranked[0].ID.Slot; got != p.want {
						t.Errorf("request %d went to %d, want %d", i, got, p.want)
					}
				}
			})
		}
	}
}

// between lists the numbers from a to b-1.
func between(a, b int) (list []int) {
	for ; a < b; a++ {
		list = append(list, a)
	}
	return list
}

// A server that left and came back holds nothing of its sessions, though it has its address and its slot again.
func TestASessionLeavesAServerThatRestarted(t *testing.T) {
	for kind, plugin := range plugins("") {
		s := scheduletest.NewSeries(t, plugin, scheduletest.Profile{Ranks: []int{2}})
		three := make([]scheduletest.Endpoint, 3)
		s.Pick(request("a"), three...)
		s.Profiles[0].Ranks, three[2].Restarts = []int{0, 1, 2}, 1
		if got := s.Pick(request("a"), three...).Ranked[0].ID.Slot; got != 0 {
			t.Errorf("%s: the session went to %d, want 0", kind, got)
		}
	}
}

// went schedules a request of session a among three endpoints, and checks where it goes.
func went(s *scheduletest.Series, three []scheduletest.Endpoint, want uint32, probe bool) {
	s.Helper()
	out := s.Pick(request("a"), three...)
	if got := out.Ranked[0].ID.Slot; got != want || out.Probe != probe {
		s.Errorf("the session went to %d, probe %t; want %d, %t", got, out.Probe, want, probe)
	}
}

// A session moves when its server is ejected, and stays where it moved.
func TestASessionLeavesAServerThatIsEjected(t *testing.T) {
	for kind, plugin := range plugins("") {
		t.Run(kind, func(t *testing.T) {
			s := scheduletest.NewSeries(t, plugin, scheduletest.Profile{Ranks: []int{2}})
			three := make([]scheduletest.Endpoint, 3)
			went(s, three, 2, false)
			s.Profiles[0].Ranks = []int{0, 1, 2}
			three[2].Outlier = &outlier.Status{Ejected: true, Until: s.Now.Add(time.Minute)}
			went(s, three, 0, false)
			three[2].Outlier = nil
			went(s, three, 0, false)
		})
	}
}

// So does a session whose header names the server.
func TestASessionOfAHeaderLeavesAServerThatIsEjected(t *testing.T) {
	filter := filters.Types["session-affinity-filter"]().(*filters.SessionAffinity)
	scorer := scorers.Types["session-affinity-scorer"]().(*scorers.SessionAffinity)
	for kind, plugin := range map[string]any{"filter": filter, "scorer": scorer} {
		s := scheduletest.NewSeries(t, plugin, scheduletest.Profile{Ranks: []int{0, 1, 2}})
		three := make([]scheduletest.Endpoint, 3)
		token := base64.StdEncoding.EncodeToString([]byte("10.0.0.2:80"))
		for _, want := range []uint32{2, 0} {
			if got := s.Pick(request(token), three...).Ranked[0].ID.Slot; got != want {
				t.Errorf("%s: the request went to %d, want %d", kind, got, want)
			}
			three[2].Outlier = &outlier.Status{Ejected: true, Until: s.Now.Add(time.Minute)}
		}
	}
}

// A degraded server keeps its sessions, if the plugin is the filter.
func TestASessionStaysAtAServerThatIsDegraded(t *testing.T) {
	s := scheduletest.NewSeries(t, plugins("")["filter"], scheduletest.Profile{Ranks: []int{2}})
	three := make([]scheduletest.Endpoint, 3)
	went(s, three, 2, false)
	s.Profiles[0].Ranks = []int{0, 1, 2}
	three[2].Outlier = &outlier.Status{Until: s.Now.Add(time.Minute)}
	went(s, three, 2, false)
}

// A request that probes an ejected server leaves its session where it was.
func TestAProbeMovesNoSession(t *testing.T) {
	s := scheduletest.NewSeries(t, plugins("")["scorer"], scheduletest.Profile{Ranks: []int{2}})
	three := make([]scheduletest.Endpoint, 3)
	went(s, three, 2, false)
	s.Profiles[0].Ranks = []int{0, 1, 2}
	three[1].Outlier = &outlier.Status{Ejected: true, Until: s.Now.Add(-time.Minute)}
	went(s, three, 1, true)
	three[1].Outlier = nil
	went(s, three, 2, false)
}

// A profile that does not serve has servers of its own for sessions, whichever way they are known.
func TestSessionsStayAtTheServerOfAProfile(t *testing.T) {
	for kind, plugin := range plugins("prefill") {
		s := scheduletest.NewSeries(t, plugin, scheduletest.Profile{Name: "decode", Ranks: []int{0}},
			scheduletest.Profile{Name: "prefill", Ranks: []int{2}})
		four := make([]scheduletest.Endpoint, 4)
		s.Pick(request("a"), four...)
		s.Profiles[1].Ranks = []int{1, 2, 3}
		out := s.Pick(request("a"), four...)
		if got := out.Decision.Profiles.At(1).Ranked.At(0); got != 2 {
			t.Errorf("%s: the session's prefill server is %d, want 2", kind, got)
		}
	}
	filter := filters.Types["session-affinity-filter"]().(*filters.SessionAffinity)
	filter.ProfileName = "prefill"
	s := scheduletest.NewSeries(t, filter, scheduletest.Profile{Name: "decode", Ranks: []int{0}},
		scheduletest.Profile{Name: "prefill", Ranks: []int{2}})
	out := s.Pick(request(""), make([]scheduletest.Endpoint, 4)...)
	want := messages.Header{
		Name: "x-session-token", Value: base64.StdEncoding.EncodeToString([]byte("10.0.0.2:80")),
	}
	if got := out.Responses.At(0).Append(nil); !slices.Equal(got, []messages.Header{want}) || out.Kept.Len() != 0 {
		t.Errorf("the response has %v and %d entries are kept, want %v and none", got, out.Kept.Len(), want)
	}
}

func TestHeaderStrategyKeepsNothing(t *testing.T) {
	for name, plugin := range map[string]any{
		"filter": filters.Types["session-affinity-filter"](), "scorer": scorers.Types["session-affinity-scorer"](),
	} {
		s := scheduletest.NewSeries(t, plugin, scheduletest.Profile{Ranks: []int{1, 2}})
		three := make([]scheduletest.Endpoint, 3)
		out := s.Pick(request(""), three...)
		token := out.Responses.At(0).At(0).Value
		s.Profiles[0].Ranks = []int{0, 1, 2}
		again := s.Pick(request(token), three...)
		if got := again.Ranked[0].ID.Slot; got != 1 || again.Kept.Len() != 0 {
			t.Errorf("%s: with its token a session went to %d and %d entries are kept, want 1 and none", name, got,
				again.Kept.Len())
		}
	}
}

func TestScorerPrefersTheServerOfASession(t *testing.T) {
	plugin := plugins("")["scorer"]
	s := scheduletest.NewSeries(t, plugin, scheduletest.Profile{Ranks: []int{2}})
	three := make([]scheduletest.Endpoint, 3)
	s.Pick(request("a"), three...)
	s.Profiles[0].Ranks = []int{0, 1, 2}
	for session, want := range map[string][]float32{"a": {0, 0, 1}, "b": {0, 0, 0}} {
		out := s.Pick(request(session), three...)
		if got := out.Decision.Profiles.At(0).Scorers.At(0).Scores.Append(nil); !slices.Equal(got, want) {
			t.Errorf("session %s: scores %v, want %v", session, got, want)
		}
	}
}

func TestLookingForASessionDoesNotAllocate(t *testing.T) {
	for kind, plugin := range plugins("") {
		s := scheduletest.NewSeries(t, plugin, scheduletest.Profile{Ranks: []int{2}})
		s.Pick(request("a"), make([]scheduletest.Endpoint, 3)...)
		bound, n := 0, -1.0
		finder := plugin.(interface{ Bound(*schedule.Input) int })
		s.Look(request("a"), func(in *schedule.Input) {
			n = testing.AllocsPerRun(100, func() { bound = finder.Bound(in) })
		}, make([]scheduletest.Endpoint, 3)...)
		if n != 0 || bound != 2 {
			t.Errorf("%s: found %d with %v allocations, want 2 and 0", kind, bound, n)
		}
	}
}

func TestAffinityValidate(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*sessions.Affinity)
		want   string
	}{
		"standard":   {func(*sessions.Affinity) {}, "<nil>"},
		"session id": {func(a *sessions.Affinity) { a.Strategy = "session_id" }, "<nil>"},
		"strategy": {func(a *sessions.Affinity) { a.Strategy = "cookie" },
			`strategy: got "cookie", want encoded_endpoint_header or session_id`},
		"header": {func(a *sessions.Affinity) { a.EncodedEndpointHeaderConfig.Header = "x token" },
			`encodedEndpointHeaderConfig.header: got "x token", want the name of a header that a ` +
				"response may have"},
		"sources": {func(a *sessions.Affinity) {
			a.SessionIDConfig.Sources = []sessions.Source{
				{Header: "a"}, {}, {Attribute: "agent-identity"}, {Header: "a", Producer: "b"},
			}
		}, "sessionIdConfig.sources[1].header: missing, and so is attribute; want one of them\n" +
			"sessionIdConfig.sources[3].producer: got b, which only an attribute has"},
		"no time": {func(a *sessions.Affinity) { a.SessionIDConfig.EvictionTTLSeconds = 0 },
			"sessionIdConfig.evictionTtlSeconds: got 0, want more than 0, at most 9223372036"},
		"eternity": {func(a *sessions.Affinity) { a.SessionIDConfig.EvictionTTLSeconds = 1e10 },
			"sessionIdConfig.evictionTtlSeconds: got 1e+10, want more than 0, at most 9223372036"},
	} {
		a := sessions.Standard()
		c.change(&a)
		if got := fmt.Sprint(a.Validate()); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}
