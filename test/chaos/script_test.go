package chaos

import (
	"math/rand/v2"
	"strconv"
	"strings"

	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

// What becomes of the access log's entry, where one tells the end.
const (
	entryComes = "entry comes"
	entryEarly = "entry comes before the stream's end"
	entryLate  = "entry comes late"
	entryTwice = "entry comes twice"
	entryNever = "entry never comes"
)

// script is one request: all of it follows from the seed and its number.
type script struct {
	number           int
	config           exchange.Config
	body             string // of the request, "" = none
	trailers         bool   // of the request
	headersOnly      bool   // the response is over with its headers
	responseTrailers bool
	responses, chunk int // chunks of the response, and their bytes
	status, served   string
	fate, entry      string
	cut              int  // the step before which fate comes, of a client that leaves
	lastWords        bool // it half-closes in the end, and does not reset
}

func (s *script) light() bool { return s.config.Response.Body == exchange.None && !s.config.Observe }

// leaves reports whether the client goes before its exchange is over.
func (s *script) leaves() bool { return s.fate != stays && s.fate != deaf }

// write draws a script. A patient client never waits for a deadline.
func write(seed uint64, n int, patient bool) *script {
	fate, at := deal(seed, n)
	if fate == stalls && patient {
		fate = stays
	}
	return writeTo(seed, n, fate, at)
}

// writeTo draws scripts until one comes by the point where its client leaves.
func writeTo(seed uint64, n int, fate, at string) *script {
	dice := diceOf(seed, "script", uint64(n))
	for {
		s := draw(dice, n)
		s.drawFate(dice, fate)
		if !s.leaves() || s.cutAt(dice, at) {
			return s
		}
	}
}

// cutAt chooses a step at this point. False: there is none.
func (s *script) cutAt(dice *rand.Rand, at string) bool {
	var there []int
	for i, step := range s.steps() {
		if step.at == at {
			there = append(there, i)
		}
	}
	if len(there) == 0 {
		return false
	}
	s.cut = there[dice.IntN(len(there))]
	return true
}

func draw(dice *rand.Rand, n int) *script {
	s := &script{number: n, entry: entryComes, lastWords: dice.IntN(3) > 0}
	s.config = exchange.Config{Request: mode(dice), Response: mode(dice)}
	if dice.IntN(10) < 4 { // what most proxies do
		s.config.Request, s.config.Response = exchange.FullDuplex(), exchange.FullDuplex()
	}
	if s.config.Observe = dice.IntN(50) == 0; s.config.Observe {
		s.config.Request, s.config.Response = exchange.Mode{Body: exchange.Streamed},
			exchange.Mode{Body: exchange.Streamed}
	}
	s.drawRequest(dice)
	s.drawResponse(dice)
	return s
}

func mode(dice *rand.Rand) exchange.Mode {
	all := []filterv3.ProcessingMode_BodySendMode{
		exchange.None, exchange.Streamed, exchange.Buffered, exchange.BufferedPartial, exchange.Duplex, exchange.GRPC,
	}
	m := exchange.Mode{Body: all[dice.IntN(len(all))], Trailers: dice.IntN(2) == 0}
	m.Trailers = m.Trailers || m.Duplex()
	return m
}

func (s *script) drawRequest(dice *rand.Rand) {
	model, text := "model-"+strconv.Itoa(dice.IntN(4)), 200+dice.IntN(3000)
	switch p := dice.IntN(100); {
	case p < 5:
		return // no body
	case p < 10:
		text = 64<<10 + dice.IntN(300<<10)
	case p == 10:
		model = poison
	}
	s.body = `{"model":"` + model + `","stream":true,"messages":[{"role":"user","content":"` +
		counted("prompt "+strconv.Itoa(dice.IntN(20))+".", text, " ") + `"}]}`
	switch dice.IntN(200) {
	case 0:
		s.body = s.body[:len(s.body)/2] // refused
	case 1:
		s.body = strings.Repeat("x", bodyLimit+1) // likewise
	}
	s.trailers = s.config.Request.Trailers && dice.IntN(4) == 0
}

func (s *script) drawResponse(dice *rand.Rand) {
	s.headersOnly = dice.IntN(20) == 0
	s.responses, s.chunk = 1+dice.IntN(6), 20+dice.IntN(2000)
	s.responseTrailers = s.config.Response.Trailers && dice.IntN(4) == 0
	s.status = []string{"200", "200", "200", "200", "200", "200", "404", "500", "503"}[dice.IntN(9)]
	s.served = []string{"picked", "picked", "picked", "none", "another", "unknown"}[dice.IntN(6)]
}

func (s *script) drawFate(dice *rand.Rand, fate string) {
	if s.fate = fate; fate == deaf {
		s.config.Request, s.config.Response, s.config.Observe = exchange.FullDuplex(), exchange.FullDuplex(), false
		s.body = `{"model":"model-0","prompt":"` + strings.Repeat("deaf ", 60_000) + `"}` // more than its window
	}
	if s.light() {
		s.entry = []string{entryComes, entryComes, entryComes, entryEarly, entryLate, entryTwice,
			entryNever}[dice.IntN(7)]
	}
}

// counted is text of about so many bytes of which no two pieces are alike, so that none can stand in for another.
func counted(before string, bytes int, after string) string {
	var b strings.Builder
	for i := 0; b.Len() < bytes; i++ {
		b.WriteString(before)
		b.WriteString(strconv.Itoa(i))
		b.WriteString(after)
	}
	return b.String()
}
