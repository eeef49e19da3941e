package records

import (
	"bufio"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/signalbox-epp/signalbox/messages"
)

var chat = messages.AnswerForm{API: messages.ChatAPI, Choices: 1}

func answer(model string, bytes int64) *Answer {
	return &Answer{Model: model, Form: chat, Usage: true, Bytes: bytes, Whole: true}
}

func reported(tokens int) *messages.Usage {
	return &messages.Usage{Source: messages.UsageReported, OutputTokens: tokens}
}

func estimated(tokens int) messages.Usage {
	return messages.Usage{Source: messages.UsageEstimated, OutputTokens: tokens}
}

var notLearned = messages.Usage{Source: messages.UsageNotLearned}

// learned knows answers of model m, which take 500 bytes and 4 for each token.
func learned() *Estimates {
	e := NewEstimates()
	for _, n := range []int{4, 256, 8, 128, 16, 64} {
		e.Learn(answer("m", int64(500+4*n)), reported(n))
	}
	return e
}

func TestEstimatesFollowALine(t *testing.T) {
	e := learned()
	for tokens := 1; tokens < 1000; tokens *= 3 {
		if got := e.Usage(answer("m", int64(500+4*tokens))); got != estimated(tokens) {
			t.Errorf("%d tokens: got %+v", tokens, got)
		}
	}
	if got := e.Usage(answer("m", 100)); got != estimated(1) {
		t.Errorf("less than the constant: got %+v, want the one token that an answer has", got)
	}
	cut := answer("m", 100)
	cut.Whole = false
	if got := e.Usage(cut); got != estimated(0) {
		t.Errorf("a cut answer of less than the constant: got %+v, want no token", got)
	}
}

func TestNoEstimateBeforeEnoughIsKnown(t *testing.T) {
	e := NewEstimates()
	for i, tokens := range []int{4, 256, 8, 128, 16, 64} {
		if got := e.Usage(answer("m", 600)); got != notLearned {
			t.Errorf("after %d answers: got %+v", i, got)
		}
		e.Learn(answer("m", int64(500+4*tokens)), reported(tokens))
	}
	if got := e.Usage(answer("m", 600)); got != estimated(25) {
		t.Errorf("after 6 answers: got %+v, want 25 tokens", got)
	}
}

// TestFormsAreApart: what was learned of one form is not used for another, in whatever way the two differ.
func TestFormsAreApart(t *testing.T) {
	e := learned()
	for name, differ := range map[string]func(*Answer){
		"model":      func(a *Answer) { a.Model = "n" },
		"API":        func(a *Answer) { a.Form.API = messages.CompletionAPI },
		"stream":     func(a *Answer) { a.Form.Stream = true },
		"usage":      func(a *Answer) { a.Form.UsageInEach = true },
		"structured": func(a *Answer) { a.Form.Structured = true },
		"log probs":  func(a *Answer) { a.Form.LogProbs = 1 },
		"choices":    func(a *Answer) { a.Form.Choices = 2 },
		"id":         func(a *Answer) { a.Form.IDLength = 5 },
	} {
		a := answer("m", 600)
		differ(a)
		if got := e.Usage(a); got != notLearned {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

// TestOneNumberOfTokens: answers that all have the same number teach no slope. An answer as long as those has as many
// tokens, and of any other nothing is known.
func TestOneNumberOfTokens(t *testing.T) {
	e := NewEstimates()
	for i := range 200 {
		e.Learn(answer("m", int64(560+i%7)), reported(16))
	}
	for bytes, want := range map[int64]messages.Usage{
		563: estimated(16), 558: estimated(16), 570: estimated(16), 600: notLearned, 500: notLearned, 5000: notLearned,
	} {
		if got := e.Usage(answer("m", bytes)); got != want {
			t.Errorf("%d bytes: got %+v, want %+v", bytes, got, want)
		}
	}
	e.Learn(answer("m", 561), reported(17)) // a slope that is all noise
	if got := e.Usage(answer("m", 5000)); got != notLearned {
		t.Errorf("5000 bytes after one answer of 17 tokens: got %+v", got)
	}
}

func TestEstimatesWithstandOutliers(t *testing.T) {
	e := NewEstimates()
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 400 {
		tokens := 4 + r.IntN(252)
		bytes := int64(500 + 4*tokens + r.IntN(9) - 4)
		switch i % 20 {
		case 10: // one in twenty is cut, or has an error in it
			bytes /= 3
		case 19:
			bytes *= 5
		}
		e.Learn(answer("m", bytes), reported(tokens))
	}
	for _, tokens := range []int{10, 50, 250} {
		got := e.Usage(answer("m", int64(500+4*tokens)))
		if got.Source != messages.UsageEstimated ||
			math.Abs(float64(got.OutputTokens-tokens)) > max(0.1*float64(tokens), 4) {
			t.Errorf("%d tokens: got %+v", tokens, got)
		}
	}
}

func TestEstimatesFollowAChange(t *testing.T) {
	e, r := NewEstimates(), rand.New(rand.NewPCG(1, 1))
	teach := func(n, constant, each int) {
		for range n {
			tokens := 4 + r.IntN(252)
			e.Learn(answer("m", int64(constant+each*tokens+r.IntN(each))), reported(tokens))
		}
	}
	teach(500, 500, 4)
	teach(40, 900, 40)
	if got := e.Usage(answer("m", 900+40*100)); got.Source != messages.UsageEstimated ||
		math.Abs(float64(got.OutputTokens-100)) > 5 {
		t.Errorf("40 answers after a sudden change: got %+v, want 100 tokens", got)
	}
	for i := range 30 { // little by little
		teach(200, 900, 40+i)
	}
	if got := e.Usage(answer("m", 900+69*100)); got.Source != messages.UsageEstimated ||
		math.Abs(float64(got.OutputTokens-100)) > 5 {
		t.Errorf("after a slow change: got %+v, want 100 tokens", got)
	}
}

// TestAnswersThatDifferTooMuch: if estimates of a form were often wrong, no further ones are made.
func TestAnswersThatDifferTooMuch(t *testing.T) {
	e, r := NewEstimates(), rand.New(rand.NewPCG(1, 1))
	for range 100 {
		e.Learn(answer("m", int64(500+r.IntN(4000))), reported(4+r.IntN(252)))
	}
	for bytes := int64(600); bytes < 6000; bytes += 100 {
		if got := e.Usage(answer("m", bytes)); got != notLearned {
			t.Errorf("%d bytes: got %+v", bytes, got)
		}
	}
}

func TestEstimatesLearnOnlyFromWholeAnswers(t *testing.T) {
	for name, spoil := range map[string]func(*Answer, *messages.Usage){
		"estimated":          func(_ *Answer, u *messages.Usage) { u.Source = messages.UsageEstimated },
		"no tokens":          func(_ *Answer, u *messages.Usage) { u.OutputTokens = 0 },
		"no bytes":           func(a *Answer, _ *messages.Usage) { a.Bytes = 0 },
		"cut":                func(a *Answer, _ *messages.Usage) { a.Whole = false },
		"a body not read":    func(a *Answer, _ *messages.Usage) { a.Form.API = messages.UnknownAPI },
		"a prompt in it too": func(a *Answer, _ *messages.Usage) { a.Form.RepeatsMore = true },
	} {
		e := NewEstimates()
		for tokens := 4; tokens < 40; tokens++ {
			a, u := answer("m", int64(500+4*tokens)), reported(tokens)
			spoil(a, u)
			e.Learn(a, u)
		}
		if forms := e.forms.All(); len(forms) != 0 {
			t.Errorf("%s: learned %v", name, forms)
		}
	}
}

func TestUnknownNamesItsReason(t *testing.T) {
	e := learned()
	unread, repeats := answer("m", 600), answer("m", 600)
	unread.Form, repeats.Form.RepeatsMore = messages.AnswerForm{}, true
	for want, a := range map[messages.UsageSource][]*Answer{
		messages.UsageNotEstimable: {unread, repeats}, messages.UsageNotMeasured: {answer("m", 0)},
		messages.UsageNotLearned: {answer("n", 600)},
	} {
		for _, a := range a {
			if got := e.Usage(a); got != (messages.Usage{Source: want}) {
				t.Errorf("%+v: got %+v, want %v", a, got, want)
			}
		}
	}
}

// TestStreamsWithUsageTeachThoseWithout: the event that carries usage alone does not count.
func TestStreamsWithUsageTeachThoseWithout(t *testing.T) {
	e := NewEstimates()
	with := func(tokens int) *Answer {
		a := answer("m", int64(300+200*tokens+250))
		a.Form.Stream = true
		return a
	}
	for _, tokens := range []int{4, 256, 8, 128, 16, 64} {
		u := reported(tokens)
		u.OwnBytes = 250
		e.Learn(with(tokens), u)
	}
	without := with(10)
	without.Usage, without.Bytes = false, without.Bytes-250
	for _, a := range []*Answer{with(10), without} {
		if got := e.Usage(a); got != estimated(10) {
			t.Errorf("usage asked for %t: got %+v, want 10 tokens", a.Usage, got)
		}
	}
}

func TestFormsAreBounded(t *testing.T) {
	e := NewEstimates()
	for n := range maxForms + 500 {
		e.Learn(answer("kept", int64(500+4*(4+n%60))), reported(4+n%60))
		e.Learn(answer(strconv.Itoa(n), 100), reported(10))
	}
	if forms := e.forms.All(); len(forms) > maxForms {
		t.Errorf("%d forms, want at most %d", len(forms), maxForms)
	}
	if got := e.Usage(answer("kept", 540)); got != estimated(10) {
		t.Errorf("the form that is in use made way for others: got %+v", got)
	}
}

func TestLoopsLearnTogether(t *testing.T) {
	e := NewEstimates()
	var all sync.WaitGroup
	for loop := range 8 {
		all.Go(func() {
			for n := range 200 {
				tokens := 4 + (n*7+loop)%250
				e.Learn(answer("m", int64(500+4*tokens)), reported(tokens))
				e.Usage(answer("m", 700))
			}
		})
	}
	all.Wait()
	if got := e.Usage(answer("m", 700)); got != estimated(50) {
		t.Errorf("got %+v, want 50 tokens", got)
	}
}

func TestEstimatesAllocateNothing(t *testing.T) {
	e := learned()
	a := answer("m", 600)
	if n := testing.AllocsPerRun(100, func() { e.Usage(a) }); n != 0 {
		t.Errorf("an estimate allocates %v times", n)
	}
	for range 400 {
		e.Learn(answer("m", 540), reported(10))
	}
	u := reported(25)
	if n := testing.AllocsPerRun(400, func() { e.Learn(a, u) }); n > 0 {
		t.Errorf("learning of a known form allocates %v times, want less than once", n)
	}
}

// recorded returns real answers, by form.
func recorded(t *testing.T) map[string][]recordedAnswer {
	t.Helper()
	file, err := os.Open("testdata/vllm-0.32.0.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	all := map[string][]recordedAnswer{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		var api, how string
		var r recordedAnswer
		if _, err := fmt.Sscan(lines.Text(), &api, &how, &r.probs, &r.bytes, &r.own, &r.tokens); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		r.form = messages.AnswerForm{API: messages.ChatAPI, Stream: how == "streamed", LogProbs: r.probs, Choices: 1}
		if api == "completions" {
			r.form.API = messages.CompletionAPI
		}
		all[fmt.Sprint(api, " ", how, " ", r.probs)] = append(all[fmt.Sprint(api, " ", how, " ", r.probs)], r)
	}
	return all
}

type recordedAnswer struct {
	form       messages.AnswerForm
	probs      uint8
	bytes, own int64
	tokens     int
}

// TestEstimatesOfRealAnswers learns from twenty answers of each form of a real vLLM and estimates the rest: within 10 %
// in sum, and 25 % each in the median. Answers come in 20 orders, for those that come first decide what the rest is
// estimated from.
func TestEstimatesOfRealAnswers(t *testing.T) {
	const orders, few = 20, 20
	all, rest := make([]held, orders), 0
	for name, answers := range recorded(t) {
		rest += len(answers) - few
		var sums, medians []float64
		for seed := range all {
			h := hold(answers, few, uint64(seed))
			all[seed].said, all[seed].truth = all[seed].said+h.said, all[seed].truth+h.truth
			all[seed].errors = append(all[seed].errors, h.errors...)
			sums, medians = append(sums, h.said/h.truth), append(medians, h.median())
		}
		t.Logf("%-22s sums of 20 orders %.2f to %.2f of the truth; median error %.0f to %.0f %%", name,
			slices.Min(sums), slices.Max(sums), 100*slices.Min(medians), 100*slices.Max(medians))
		if worst := slices.Max(medians); worst > 0.25 {
			t.Errorf("%s: estimates are off by %.2f in the median", name, worst)
		}
	}
	for seed, h := range all {
		if ratio := h.said / h.truth; math.Abs(ratio-1) > 0.1 || h.median() > 0.25 || len(h.errors) < rest*8/10 {
			t.Errorf("order %d: %d of %d answers are estimated, %.2f of the truth in sum, off by %.2f in the median",
				seed, len(h.errors), rest, ratio, h.median())
		}
	}
}

// held has estimates beside the tokens that were reported.
type held struct {
	said, truth float64   // tokens in all
	errors      []float64 // of each, as a share of the truth
}

func (h held) median() float64 {
	if len(h.errors) == 0 {
		return math.NaN()
	}
	return slices.Sorted(slices.Values(h.errors))[len(h.errors)/2]
}

// hold learns from the first few answers of an order, and estimates the others. What is not estimated does not count.
func hold(answers []recordedAnswer, few int, seed uint64) (h held) {
	e, order := NewEstimates(), rand.New(rand.NewPCG(seed, 0)).Perm(len(answers))
	for n, i := range order {
		r := answers[i]
		a := &Answer{Model: "tiny", Form: r.form, Usage: true, Bytes: r.bytes, Whole: true}
		if n < few {
			e.Learn(a, &messages.Usage{Source: messages.UsageReported, OutputTokens: r.tokens, OwnBytes: r.own})
			continue
		}
		if got := e.Usage(a); got.Source == messages.UsageEstimated {
			h.said, h.truth = h.said+float64(got.OutputTokens), h.truth+float64(r.tokens)
			h.errors = append(h.errors, math.Abs(float64(got.OutputTokens-r.tokens))/float64(r.tokens))
		}
	}
	return h
}

// Forms that take turns must not keep each other from learning.
func TestFormsThatTakeTurnsGoOnLearning(t *testing.T) {
	e, sizes := NewEstimates(), []int{4, 256, 8, 128, 16, 64}
	turns := func(n, each int) {
		for i := range n {
			tokens := sizes[i%len(sizes)]
			e.Learn(answer("m", int64(500+each*tokens)), reported(tokens))
			for range 3 { // with every fourth turn of all, m has none of those that count
				e.Learn(answer("other", int64(500+4*tokens)), reported(tokens))
			}
		}
	}
	turns(200, 4)
	turns(2000, 8) // the server changed
	if got := e.Usage(answer("m", 500+8*100)); got.Source != messages.UsageEstimated || got.OutputTokens < 90 ||
		got.OutputTokens > 110 {
		t.Errorf("usage %+v, want 100 tokens, as the newer answers have it", got)
	}
}
