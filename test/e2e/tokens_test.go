package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// answerKind is a kind of request whose answer has a form of its own.
type answerKind struct {
	api      string // chat, completions
	streamed bool
	usage    bool // a streamed answer ends with its usage
	logProbs int  // beside that of the chosen token; 0 = none are asked for
}

// kinds are those of the table in README.md.
var kinds = []answerKind{
	{api: "chat"}, {api: "chat", logProbs: 5}, {api: "chat", streamed: true, usage: true},
	{api: "chat", streamed: true},
	{api: "chat", streamed: true, usage: true, logProbs: 5},
	{api: "completions"}, {api: "completions", logProbs: 5}, {api: "completions", streamed: true, usage: true},
	{api: "completions", streamed: true}, {api: "completions", streamed: true, usage: true, logProbs: 5},
}

func (k answerKind) String() string {
	name := k.api + ", plain"
	if k.streamed {
		name = k.api + ", streamed"
		if !k.usage {
			name += " without usage"
		}
	}
	if k.logProbs > 0 {
		name += ", log probs"
	}
	return name
}

// ask has the server generate exactly so many tokens: it may not end before.
func (k answerKind) ask(c *client, model, prompt string, tokens int) answer {
	body := map[string]any{"model": model, "max_tokens": tokens, "ignore_eos": true, "temperature": 1}
	path := "/v1/completions"
	switch k.api {
	case "chat":
		path = "/v1/chat/completions"
		body["messages"] = []map[string]string{{"role": "user", "content": prompt}}
		if k.logProbs > 0 {
			body["logprobs"], body["top_logprobs"] = true, k.logProbs
		}
	default:
		body["prompt"] = prompt
		if k.logProbs > 0 {
			body["logprobs"] = k.logProbs
		}
	}
	if k.streamed {
		body["stream"] = true
		if k.usage {
			body["stream_options"] = map[string]bool{"include_usage": true}
		}
	}
	return c.post(path, mustJSON(body))
}

// tokenCount is what a record says of an answer's tokens, beside the truth.
type tokenCount struct {
	kind   answerKind
	truth  int
	source string
	tokens int
}

// estimates is a row of the table: the estimated answers among some.
type estimates struct {
	answers, estimated, unknown int
	truth, tokens               int // of the estimated
	errors                      []float64
}

func (e *estimates) add(a tokenCount) {
	switch e.answers++; a.source {
	case "estimated":
		e.estimated++
		e.truth, e.tokens = e.truth+a.truth, e.tokens+a.tokens
		e.errors = append(e.errors, math.Abs(float64(a.tokens-a.truth))/float64(a.truth))
	case "reported", "none":
	default:
		e.unknown++
	}
}

func (e *estimates) ratio() float64 { return float64(e.tokens) / float64(e.truth) }

func (e *estimates) median() float64 {
	if len(e.errors) == 0 {
		return math.NaN()
	}
	return slices.Sorted(slices.Values(e.errors))[len(e.errors)/2]
}

func (e *estimates) String() string {
	return fmt.Sprintf("| %d | %d | %d | %d | %d | %.2f | %.0f %% |", e.answers, e.unknown, e.estimated, e.truth,
		e.tokens, e.ratio(), 100*e.median())
}

// countsTokens holds the output tokens that records of the light lane estimate against the truth: within 10 % in sum
// and 25 % each, in the median. A third of the requests goes through the full lane,
// so that a few hundred requests are enough to learn from.
func (f *fleet) countsTokens(t *testing.T) {
	servers, each := f.servers, 70
	if f.simulated {
		servers, each = simulated(t, 2, "--model", f.model, "--decode-rate", "2000", "--prefill-rate", "100000"), 60
	}
	p := serve(t, servers)
	p.pooled(t, len(servers))
	e := startEnvoy(t, overrideHost, p.grpcPort, servers, share(t, 33))
	e.asksPicker(t)
	c := newClient(e.url)
	t.Cleanup(c.close)

	var all estimates
	rows, lengths := map[string]*estimates{}, map[string]*estimates{}
	for _, a := range f.tell(t, c, p, each) {
		length := "up to 32 tokens"
		if a.truth > 32 {
			length = "33 to 256 tokens"
		}
		for name, table := range map[string]map[string]*estimates{a.kind.String(): rows, length: lengths} {
			if table[name] == nil {
				table[name] = &estimates{}
			}
			table[name].add(a)
		}
		all.add(a)
	}
	t.Log("| kind | answers | unknown | estimated | their tokens | estimate | of the truth | median error |")
	for _, table := range []map[string]*estimates{rows, lengths, {"all": &all}} {
		for _, name := range slices.Sorted(maps.Keys(table)) {
			t.Logf("| %s %s", name, table[name])
		}
	}
	if r := all.ratio(); math.Abs(r-1) > 0.1 || all.median() > 0.25 {
		t.Errorf("estimates are %.2f of the truth in sum, and off by %.2f in the median; want 0.9 to 1.1, and 0.25", r,
			all.median())
	}
	if all.estimated < all.answers/3 {
		t.Errorf("%d of %d answers are estimated: that proves little", all.estimated, all.answers)
	}
}

// tell sends so many requests of each kind, from 4 to 256 tokens, one after the other in a mixed order, and reads the
// records of all. At once they would measure how far a server on a small machine falls behind:
// it then puts several tokens into an event.
func (f *fleet) tell(t *testing.T, c *client, p *picker, each int) []tokenCount {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	all := make([]tokenCount, 0, each*len(kinds))
	for range each {
		for _, k := range kinds {
			all = append(all, tokenCount{kind: k, truth: int(math.Round(4 * math.Pow(64, r.Float64())))})
		}
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	ids := make([]string, len(all))
	for i := range all {
		a := all[i].kind.ask(c, f.model, fmt.Sprintf("Story number %d, of trains.", i), all[i].truth)
		if !a.whole() {
			t.Fatal(a.String())
		}
		ids[i] = a.header.Get("x-signalbox-request-id")
	}
	p.idle(t)
	for i := range all {
		all[i].source, all[i].tokens = p.usage(t, ids[i])
	}
	return all
}

// usage is how a request's record says that its output tokens are known, and how many they are.
func (p *picker) usage(t *testing.T, id string) (source string, tokens int) {
	t.Helper()
	status, text := get(p.metrics + "/debug/requests/" + id + "?format=json")
	var page struct {
		Requests []struct {
			Usage struct {
				Source       string
				OutputTokens int `json:"output_tokens"`
			}
		}
	}
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&page); err != nil || len(page.Requests) != 1 {
		t.Fatalf("record %s: status %d, %v in %.300q", id, status, err, text)
	}
	u := page.Requests[0].Usage
	return u.Source, u.OutputTokens
}

// shownByOverride makes a bootstrap of the light lane like one that is none of ours: the picker is shown whole request
// bodies and no response bodies, in no share of the requests.
func shownByOverride(t *testing.T, allowed bool) func(string) string {
	const ours = `                request_body_mode: FULL_DUPLEX_STREAMED
                request_trailer_mode: SEND
                response_header_mode: SEND
                response_body_mode: NONE
`
	return func(text string) string {
		text = share(t, 0)(text)
		text = replaceOnce(t, text, ours, strings.NewReplacer("FULL_DUPLEX_STREAMED", "BUFFERED",
			"request_trailer_mode: SEND",
			"request_trailer_mode: SKIP").Replace(ours))
		return replaceOnce(t, text, "              status_on_error:",
			fmt.Sprintf("              allow_mode_override: %t\n              status_on_error:", allowed))
	}
}

// TestEnvoyIsAskedToShowBodies: an Envoy that sends no share of its requests through the full lane is asked to show one
// response in twenty, and from those the tokens of the others are estimated. One that does not allow it serves as
// before, and says nothing: tokens stay unknown.
func TestEnvoyIsAskedToShowBodies(t *testing.T) {
	t.Parallel() // it mostly waits
	servers := simulated(t, 2, "--model", model, "--decode-rate", "5000", "--prefill-rate", "1000000")
	for name, allowed := range map[string]bool{"allowed": true, "not allowed": false} {
		t.Run(name, func(t *testing.T) {
			p := serve(t, servers)
			p.pooled(t, 2)
			e := startEnvoy(t, overrideHost, p.grpcPort, servers, shownByOverride(t, allowed))
			e.asksPicker(t)
			c := newClient(e.url)
			t.Cleanup(c.close)
			var sums estimates
			for i := range 200 {
				k := answerKind{api: "chat"}
				tokens := 4 + i*29%97
				a := k.ask(c, model, fmt.Sprint("story ", i), tokens)
				if !a.whole() {
					t.Fatal(a.String())
				}
				id := a.header.Get("x-signalbox-request-id")
				eventually(t, 10*time.Second, "the access log tells of "+id, func() bool { return p.ended(t, id) })
				source, told := p.usage(t, id)
				if i >= 160 {
					sums.add(tokenCount{k, tokens, source, told})
				}
			}
			p.idle(t)
			shown, ignored := p.metric("signalbox_mode_overrides_total", `result="shown"`),
				p.metric("signalbox_mode_overrides_total", `result="ignored"`)
			t.Logf("%v bodies were shown, %v were not; of the last 40 answers %d are estimated, %d unknown", shown,
				ignored, sums.estimated, sums.unknown)
			switch {
			case allowed && (shown < 9 || ignored > 0 || sums.estimated < 20 || math.Abs(sums.ratio()-1) > 0.1 ||
				sums.median() > 0.25):
				t.Errorf("%s", sums.String())
			case !allowed && (shown > 0 || ignored != 3 || sums.unknown != 40):
				t.Errorf("%s", sums.String())
			}
		})
	}
}

// ended reports whether a request's record is that of one that ended.
func (p *picker) ended(t *testing.T, id string) bool {
	t.Helper()
	_, text := get(p.metrics + "/debug/requests/" + id + "?format=json")
	return strings.Contains(text, `"running": false`)
}
