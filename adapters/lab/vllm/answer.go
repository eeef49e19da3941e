package vllm

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/lab/vllm/batch"
)

// answer is one response on its way. Its choices are guarded by the server's lock.
type answer struct {
	identity
	format *format
	each   settings
	events int // of a stream whose events are numbered

	promptTokens int
	choices      []choice
	byID         map[uint64]int // sequence -> index of its choice
	open         int            // choices that have not ended
	ready        chan struct{}  // holds one element when there is something to write
	broken       bool           // the engine died over it
	stall        int            // tokens that it still shows before it stalls; below 0 = it does not
}

// identity is what stays the same from the first byte of an answer to the last.
type identity struct {
	id    []byte // JSON
	model []byte // JSON
	came  time.Time
	asked object // the request
	call  string // name of the tool that the answer calls; "" = it calls none
}

// choice is one sequence of an answer.
type choice struct {
	id, key   uint64
	prompt    int // tokens
	generated int // tokens
	sent      int // of these, written to the stream
	cached    int // tokens
	ended     batch.Reason
	closed    bool // the stream has told how it ended
}

// forward takes note of a sequence's progress. The caller holds the lock.
func (a *answer) forward(p batch.Progress) {
	c := &a.choices[a.byID[p.ID]]
	c.generated, c.ended, c.cached = p.Generated, p.Ended, p.Cached
	if c.ended != batch.Running {
		a.open--
	}
	if a.open > 0 && !a.each.stream {
		return
	}
	select {
	case a.ready <- struct{}{}:
	default: // the writer has not come to the last one yet
	}
}

// api is what a path speaks: the form of its answers, and how the prompts of a request are read.
type api struct {
	format *format
	read   func(*Server, object) ([][]uint32, *failure)
}

// generate answers a request of an API.
func (s *Server) generate(w http.ResponseWriter, r *http.Request, api api) {
	a, requests, fail := s.prepare(w, r, api)
	if fail != nil {
		fail.writeAs(w, api.format)
		return
	}
	if fail, inStream := s.refusal(a, len(requests)); fail != nil {
		a.refuse(w, fail, inStream)
		return
	}
	if !s.pause(r, s.enter()) {
		return
	}
	if !s.submit(a, requests) { // others came in meanwhile
		a.refuse(w, overloaded(), true)
		return
	}
	defer s.abandon(a)
	if a.each.stream {
		s.stream(w, r, a)
	} else if s.complete(r, a) {
		s.whole(w, a)
	}
}

// refuse answers with an error, which a stream that passed the door has in an event.
func (a *answer) refuse(w http.ResponseWriter, f *failure, inStream bool) {
	if !inStream || !a.each.stream {
		f.writeAs(w, a.format)
		return
	}
	w.Header().Set("Content-Type", eventStream)
	_, _ = w.Write(f.lastEvents(nil, a.format)) // nothing is left to tell a client that left
}

// complete waits until an answer can be written as a whole; false = the client has left.
func (s *Server) complete(r *http.Request, a *answer) bool {
	for {
		turned := s.turning()
		s.mu.Lock()
		done := a.broken || a.open == 0 && a.stall < 0 && !s.faults.Stalled
		s.mu.Unlock()
		if done {
			return true
		}
		select {
		case <-a.ready:
		case <-turned:
		case <-r.Context().Done():
			return false
		}
	}
}

// prepare reads a request. The first problem found is the one that is answered.
func (s *Server) prepare(w http.ResponseWriter, r *http.Request, api api) (*answer, []batch.Request, *failure) {
	f := api.format
	o, fail := readObject(w, r)
	if fail != nil {
		return nil, nil, fail
	}
	prompts, fail := api.read(s, o)
	if fail != nil {
		return nil, nil, fail
	}
	t, fail := s.readSettings(o)
	if fail != nil {
		return nil, nil, fail
	}
	if t.maxTokens == 0 {
		t.maxTokens = f.maxTokens
	}
	requests, fail := s.sequences(t, prompts)
	if fail != nil {
		return nil, nil, fail
	}
	call := forcedCall(o)
	if call != "" && f == &chatFormat {
		f = callFormat(call, s.nextID())
	}
	id := r.Header.Get("X-Request-Id")
	if id == "" {
		_ = json.Unmarshal(o[f.idMember], &id) // what is no text names no request
	}
	if id == "" {
		id = s.nextID()
	}
	a := &answer{
		identity: identity{
			id: quoted(f.idPrefix + id), model: quoted(t.model), came: s.cfg.Clock.Now(),
			asked: o, call: call,
		},
		format: f, each: t,
		byID: make(map[uint64]int), open: len(requests), ready: make(chan struct{}, 1),
	}
	for _, p := range prompts {
		a.promptTokens += max(len(p), 1)
	}
	return a, requests, nil
}

// nextID is 16 hexadecimal digits.
func (s *Server) nextID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("%016x", s.ids.Uint64())
}

func (s *Server) fingerprint() string {
	return fmt.Sprintf("vllm-%s-%08x", version, uint32(s.cfg.Seed))
}

// quoted is text as JSON; strings always encode.
func quoted(text string) []byte {
	b, _ := json.Marshal(text)
	return b
}

// whole writes an answer that is complete, or broken.
func (s *Server) whole(w http.ResponseWriter, a *answer) {
	s.mu.Lock()
	choices, broken := append([]choice(nil), a.choices...), a.broken
	s.mu.Unlock()
	if broken {
		engineDead().writeAs(w, a.format)
		return
	}
	if a.format.spoken != nil {
		writeJSON(w, http.StatusOK, json.RawMessage(a.format.spoken.whole(s, a)))
		return
	}
	b := a.head(nil, a.format.object)
	for i, c := range choices {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"index":`...)
		b = strconv.AppendInt(b, int64(i), 10)
		b = append(b, a.format.text...)
		for n := range c.generated {
			b = append(b, s.tokens.Word(c.key, n)...)
		}
		b = append(b, a.format.afterText...)
		b = append(append(b, `"finish_reason":"`...), a.reason(c.ended)...)
		b = append(b, a.format.endOfChoice...)
	}
	b = append(b, `],"service_tier":null,"system_fingerprint":"`...)
	b = append(append(b, s.fingerprint()...), `","usage":`...)
	b = s.usage(b, a, choices)
	b = append(b, a.format.tail...)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	_, _ = w.Write(b) // nothing is left to tell a client that left
}

// head begins an object of the answer, up to and with the bracket that opens its choices.
func (a *answer) head(b []byte, object string) []byte {
	b = append(append(b, `{"id":`...), a.id...)
	b = append(append(b, `,"object":"`...), object...)
	b = append(b, `","created":`...)
	b = strconv.AppendInt(b, a.came.Unix(), 10)
	b = append(append(b, `,"model":`...), a.model...)
	return append(b, `,"choices":[`...)
}

// usage appends the usage of a whole answer.
func (s *Server) usage(b []byte, a *answer, choices []choice) []byte {
	generated, cached := 0, 0
	for i, c := range choices {
		generated += c.generated
		if i%a.each.n == 0 {
			cached += c.cached
		}
	}
	b = appendCounts(b, a.promptTokens, generated)
	b = append(b, `,"prompt_tokens_details":`...)
	if s.cfg.PromptTokensDetails {
		b = append(b, `{"cached_tokens":`...)
		b = strconv.AppendInt(b, int64(cached), 10)
		if a.format.chat {
			b = strconv.AppendInt(append(b, `,"created_cache_tokens":`...), int64(s.created(a, cached)), 10)
		} else {
			b = append(b, `,"created_cache_tokens":null`...)
		}
		b = append(b, `,"multimodal_tokens":null}`...)
	} else {
		b = append(b, "null"...)
	}
	return append(b, `,"completion_tokens_details":null}`...)
}

// created is how many tokens of a chat's prompt are in blocks that were not cached before;
// vLLM tells it for chats only.
func (s *Server) created(a *answer, cached int) int {
	return a.promptTokens/s.cfg.BlockTokens*s.cfg.BlockTokens - cached
}

// appendCounts opens a usage object.
func appendCounts(b []byte, prompt, generated int) []byte {
	b = append(b, `{"prompt_tokens":`...)
	b = strconv.AppendInt(b, int64(prompt), 10)
	b = append(b, `,"total_tokens":`...)
	b = strconv.AppendInt(b, int64(prompt+generated), 10)
	b = append(b, `,"completion_tokens":`...)
	return strconv.AppendInt(b, int64(generated), 10)
}
