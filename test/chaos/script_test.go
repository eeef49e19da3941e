package chaos

import (
	"math/rand/v2"
	"strconv"
	"strings"

	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"

	"github.com/signalbox-epp/signalbox/adapters/proxy/exchange"
)

// What a client does in the end, or in the middle.
const (
	stays      = "stays"
	cancels    = "cancels"
	halfCloses = "half-closes"
	stalls     = "stalls"
	deaf       = "reads nothing"
	breaks     = "breaks its connection"
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
	cut              int  // the step before which fate comes
	lastWords        bool // it half-closes in the end, and does not reset
}

func (s *script) light() bool { return s.config.Response.Body == exchange.None && !s.config.Observe }

// write draws a script. A patient client never waits for a deadline.
func write(seed uint64, n int, patient bool) *script {
	dice := diceOf(seed, "script", uint64(n))
	s := &script{number: n, fate: stays, entry: entryComes, lastWords: dice.IntN(3) > 0}
	s.config = exchange.Config{Request: mode(dice), Response: mode(dice)}
	if dice.IntN(10) < 4 { // what most proxies do
		s.config.Request, s.config.Response = exchange.FullDuplex(), exchange.FullDuplex()
	}
	if s.config.Observe = dice.IntN(50) == 0; s.config.Observe {
		s.config.Request, s.config.Response = exchange.LaneMode{Body: exchange.Streamed}, exchange.LaneMode{Body: exchange.Streamed}
	}
	s.drawRequest(dice)
	s.drawResponse(dice)
	s.drawFate(dice, patient)
	return s
}

func mode(dice *rand.Rand) exchange.LaneMode {
	all := []filterv3.ProcessingMode_BodySendMode{
		exchange.None, exchange.Streamed, exchange.Buffered, exchange.BufferedPartial, exchange.Duplex, exchange.GRPC,
	}
	m := exchange.LaneMode{Body: all[dice.IntN(len(all))], Trailers: dice.IntN(2) == 0}
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
	s.body = `{"model":"` + model + `","stream":true,"messages":[{"role":"user","content":"` + strings.Repeat("prompt "+strconv.Itoa(dice.IntN(20))+" ", text/9) + `"}]}`
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

func (s *script) drawFate(dice *rand.Rand, patient bool) {
	switch p := dice.IntN(1000); {
	case p < 150:
		s.fate = cancels
	case p < 200:
		s.fate = halfCloses
	case p < 230 && !patient:
		s.fate = stalls
	case p < 240:
		s.fate = deaf
		s.config.Request, s.config.Response, s.config.Observe = exchange.FullDuplex(), exchange.FullDuplex(), false
		s.body = `{"model":"model-0","prompt":"` + strings.Repeat("deaf ", 60_000) + `"}` // more than its window
	case p < 243:
		s.fate = breaks
	}
	if s.light() {
		s.entry = []string{entryComes, entryComes, entryComes, entryEarly, entryLate, entryTwice, entryNever}[dice.IntN(7)]
	}
	s.cut = dice.IntN(len(s.steps()))
}
