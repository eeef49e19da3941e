package policybench

import (
	"container/list"
	"time"
)

// blockTokens is how many tokens a KV block holds, as the picker counts blocks too.
const blockTokens = 64

// Engine is the setting of a model server.
type Engine struct {
	KVBlocks     int // of blockTokens tokens
	StepTokens   int // most tokens in a step: prompts are computed in chunks
	MaxSequences int // most in a batch
	Timing       Timing
}

// Timing is what a step takes: Step, and more for each thing that is computed in it.
type Timing struct {
	Name      string
	Step      time.Duration
	Prefill   time.Duration // a token of a prompt
	Attention float64       // nanoseconds, for a token of a prompt and a token before it
	Decode    time.Duration // a sequence that gets its next token
	Context   float64       // nanoseconds, for a token that such a sequence has
	Speed     float64       // all is divided by it; 0 = 1
}

// GPU is about a model of 8 thousand million parameters on a GPU of a data centre.
func GPU() Timing {
	return Timing{
		Name:      "gpu",
		Step:      4 * time.Millisecond,
		Prefill:   60 * time.Microsecond,
		Attention: 1.5,
		Decode:    120 * time.Microsecond,
		Context:   50,
	}
}

// CPU is what TestTimingOfVLLM has fitted to vLLM 0.32.0, which runs a model of two layers on one core.
func CPU() Timing {
	return Timing{
		Name:      "cpu",
		Step:      980 * time.Microsecond,
		Prefill:   21 * time.Microsecond,
		Attention: .6,
		Decode:    70 * time.Microsecond,
		Context:   35,
	}
}

// rate returns how many tokens of prompts of a usual length a server computes in a second, if it does nothing else.
func (e Engine) rate(prompt int) float64 {
	t := float64(e.Timing.Step)/float64(e.StepTokens) + float64(e.Timing.Prefill) + e.Timing.Attention*float64(prompt)/2
	return 1e9 / t * e.Timing.speed()
}

func (t Timing) speed() float64 {
	if t.Speed == 0 {
		return 1
	}
	return t.Speed
}

// sequence is a request at a server.
type sequence struct {
	*exchange
	miss      int      // tokens of the prompt that were to be computed when it came, at a watched server
	computed  int      // tokens whose KV is there
	generated int      // tokens of the answer
	cached    int      // tokens of the prompt that were cached when it was admitted
	held      []*block // blocks by name, which others may share: the first of the prompt
	own       int      // blocks without a name
	chunk     int      // tokens that the running step computes; 0 = none
}

// block is a KV block that holds a known part of a prompt.
type block struct {
	id   uint64
	refs int           // sequences that hold it
	idle *list.Element // its place among those that none holds; nil = one does
}

// server is a model server: continuous batching, prompts in chunks, a cache of blocks whose least recently used go
// first.
type server struct {
	Engine
	watched bool // coming is kept, for policies that know it

	waiting []*sequence
	running []*sequence // in the order of their admission
	free    int         // blocks that hold nothing
	blocks  map[uint64]*block
	idle    list.List      // *block that none holds, least recently used first
	coming  map[uint64]int // blocks of prompts of requests that are there, computed or not, by how many have them

	step  step
	tally tally
}

// step is the step of the engine under way.
type step struct {
	runs    bool // otherwise there is none
	ends    time.Time
	took    time.Duration
	decodes bool // it computes no prompt
}

// tally counts what a server has done.
type tally struct {
	prompt, cached int // tokens of prompts that were admitted, and those of them that were cached
	computed       int // tokens of prompts that were computed, again ones too
	busy           time.Duration
	preempted      int
}

func newServer(e Engine, watched bool) *server {
	return &server{Engine: e, watched: watched, free: e.KVBlocks, blocks: map[uint64]*block{}, coming: map[uint64]int{}}
}

// hits returns how many first blocks of a prompt are cached.
func (s *server) hits(prompt []uint64) int {
	for i, id := range prompt {
		if s.blocks[id] == nil {
			return i
		}
	}
	return len(prompt)
}

// holds returns how many first blocks of a prompt are cached, or will be before a request that comes now.
func (s *server) holds(prompt []uint64) int {
	for i, id := range prompt {
		if s.blocks[id] == nil && s.coming[id] == 0 {
			return i
		}
	}
	return len(prompt)
}

// miss returns how many tokens of a request's prompt would have to be computed, if it came now.
func (s *server) miss(x *exchange) int { return x.miss(s.holds(x.blocks)) }

// miss returns how many tokens of the prompt are to be computed where so many of its blocks are cached: the last one is
// in any case.
func (x *exchange) miss(hits int) int {
	return x.prompt - min(hits*blockTokens, (x.prompt-1)/blockTokens*blockTokens)
}

// ahead returns how many tokens of prompts have to be computed before a request that comes now.
func (s *server) ahead() (tokens int) {
	for _, q := range s.waiting {
		tokens += q.miss
	}
	for _, q := range s.running {
		tokens += max(q.prompt+q.generated-q.computed-1, 0)
	}
	return tokens
}

// usage returns the share of KV blocks that sequences hold.
func (s *server) usage() float64 {
	return float64(s.KVBlocks-s.free-s.idle.Len()) / float64(s.KVBlocks)
}

// fits reports whether the cache can ever hold a request.
func (s *server) fits(x *exchange) bool { return x.prompt+x.output <= s.KVBlocks*blockTokens }

// submit adds a request that fits.
func (s *server) submit(x *exchange, now time.Time) {
	q := &sequence{exchange: x}
	s.waiting = append(s.waiting, q)
	if s.watched {
		q.miss = s.miss(x)
		for _, id := range x.blocks {
			s.coming[id]++
		}
	}
	if !s.step.runs {
		s.begin(now)
	}
}

// wake returns when something may have happened at the server that somebody sees; zero = never, as things are.
func (s *server) wake() time.Time {
	if !s.step.runs {
		return time.Time{}
	}
	if !s.step.decodes || len(s.waiting) > 0 {
		return s.step.ends
	}
	left := s.running[0].output - s.running[0].generated
	for _, q := range s.running[1:] {
		left = min(left, q.output-q.generated)
	}
	return s.step.ends.Add(time.Duration(left-1) * s.step.took) // later steps take no less, while none ends
}

// advance ends the steps that are over by now. Each first token and each end is told.
func (s *server) advance(now time.Time, told func(q *sequence, at time.Time)) {
	for s.step.runs && !s.step.ends.After(now) {
		at := s.step.ends
		s.end(at, told)
		s.begin(at)
	}
}

// begin begins a step, unless there is nothing to compute.
func (s *server) begin(now time.Time) {
	budget, preempted := s.StepTokens, false
	for i := 0; i < len(s.running); i++ {
		q := s.running[i]
		need := min(q.prompt+q.generated-q.computed, budget)
		for i < len(s.running) && !s.grow(q, q.computed+need) {
			s.preempt(s.running[len(s.running)-1])
			preempted = true
		}
		if i < len(s.running) {
			q.chunk = need
			budget -= need
		}
	}
	for !preempted && budget > 0 && len(s.waiting) > 0 && len(s.running) < s.MaxSequences {
		q := s.waiting[0]
		s.hold(q)
		need := min(q.prompt+q.generated-q.computed, budget)
		if !s.grow(q, q.computed+need) {
			s.drop(q)
			break
		}
		q.chunk = need
		budget -= need
		s.waiting = s.waiting[1:]
		s.running = append(s.running, q)
		if q.generated == 0 {
			q.cached = q.computed
		}
		s.tally.prompt += q.prompt
		s.tally.cached += q.computed
	}
	s.time(now)
}

// time sets when the step ends.
func (s *server) time(now time.Time) {
	took, some := float64(s.Timing.Step), false
	s.step.decodes = true
	for _, q := range s.running {
		switch {
		case q.chunk == 0:
			continue
		case q.generated == 0 || q.chunk > 1:
			s.step.decodes = false
			s.tally.computed += q.chunk
			took += float64(
				q.chunk,
			) * (float64(s.Timing.Prefill) + s.Timing.Attention*(float64(q.computed)+float64(q.chunk)/2))
		default:
			took += float64(s.Timing.Decode) + s.Timing.Context*float64(q.computed)
		}
		some = true
	}
	s.step.runs = some
	s.step.took = time.Duration(took / s.Timing.speed())
	s.step.ends = now.Add(s.step.took)
}

// end ends the running step.
func (s *server) end(at time.Time, told func(*sequence, time.Time)) {
	s.tally.busy += s.step.took
	kept := s.running[:0]
	for _, q := range s.running {
		chunk := q.chunk
		q.chunk = 0
		q.computed += chunk
		s.name(q)
		if chunk == 0 || q.computed < q.prompt+q.generated {
			kept = append(kept, q)
			continue
		}
		q.generated++
		if q.generated < q.output {
			kept = append(kept, q)
		} else {
			s.drop(q)
			s.gone(q)
		}
		if q.generated == 1 || q.generated == q.output {
			told(q, at)
		}
	}
	clear(s.running[len(kept):])
	s.running = kept
}

// gone forgets a request that has ended.
func (s *server) gone(q *sequence) {
	if !s.watched {
		return
	}
	for _, id := range q.blocks {
		if s.coming[id]--; s.coming[id] == 0 {
			delete(s.coming, id)
		}
	}
}

// hold gives a request the blocks of its prompt that are cached. The last token is computed in any case.
func (s *server) hold(q *sequence) {
	n := min(s.hits(q.blocks), (q.prompt+q.generated-1)/blockTokens)
	for _, id := range q.blocks[:n] {
		s.take(q, s.blocks[id])
	}
	q.computed = n * blockTokens
}

// take has a sequence hold a block by name.
func (s *server) take(q *sequence, b *block) {
	if b.idle != nil {
		s.idle.Remove(b.idle)
		b.idle = nil
	}
	b.refs++
	q.held = append(q.held, b)
}

// grow gives a sequence the blocks for so many tokens. It reports false, and gives none, if there are too few.
func (s *server) grow(q *sequence, tokens int) bool {
	need := (tokens+blockTokens-1)/blockTokens - len(q.held) - q.own
	if need <= 0 {
		return true
	}
	if need > s.free+s.idle.Len() {
		return false
	}
	for range need - s.free {
		b := s.idle.Remove(s.idle.Front()).(*block)
		delete(s.blocks, b.id)
		s.free++
	}
	s.free -= need
	q.own += need
	return true
}

// name makes the prompt's blocks that were computed known to others. Of one that another has computed meanwhile, that
// one's is taken.
func (s *server) name(q *sequence) {
	for n := len(q.held); n < len(q.blocks) && (n+1)*blockTokens <= q.computed; n++ {
		b := s.blocks[q.blocks[n]]
		if b == nil {
			b = &block{id: q.blocks[n]}
			s.blocks[b.id] = b
		} else {
			s.free++
		}
		s.take(q, b)
		q.own--
	}
}

// drop takes back all that a sequence holds. The ends of prompts go before their beginnings when room is needed.
func (s *server) drop(q *sequence) {
	for i := len(q.held) - 1; i >= 0; i-- {
		b := q.held[i]
		if b.refs--; b.refs == 0 {
			b.idle = s.idle.PushBack(b)
		}
	}
	s.free += q.own
	q.held, q.own, q.computed = nil, 0, 0
}

// preempt has the sequence that was admitted last wait again. What it has generated is computed again.
func (s *server) preempt(last *sequence) {
	s.tally.preempted++
	s.drop(last)
	s.running = s.running[:len(s.running)-1]
	s.waiting = append([]*sequence{last}, s.waiting...)
}
