package conformance

import (
	"slices"
	"strconv"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

// habits are faults of the scripted EPP that show in no answer, or only to whom it keeps waiting.
type habits struct {
	oneLock     bool   // one lock for all streams is held over each send
	hoards      bool   // what is not read is queued without end
	keepsLoad   bool   // load is not given back
	keepsPlace  bool   // a request that leaves the queue keeps its place
	holdsOn     bool   // bodies stay counted as held
	holdsMore   bool   // bodies are held three times
	keepsCopies bool   // bodies stay in memory
	keepsStream bool   // a stream that was reset stays open
	countsAll   bool   // every request is counted as served
	countsNone  bool   // none is counted as served
	countsTwice bool   // each is counted twice
	deaf        bool   // the endpoint that served is not read
	mute        bool   // health does not hear of the end
	unnamed     string // health does not know this service
	cuts        bool   // the end cuts streams
}

// book is what the scripted EPP knows of its requests.
type book struct {
	sending sync.Mutex    // for a habit
	stopped chan struct{} // closed once the server is to stop

	mu      sync.Mutex
	streams int
	held    int64
	waiting int
	load    map[string]int
	ends    map[string]Ending
	copies  [][]byte
}

func (b *book) inLine() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting
}

func newBook() *book {
	return &book{stopped: make(chan struct{}), load: map[string]int{}, ends: map[string]Ending{}}
}

func (b *book) opened() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.streams++
}

// note writes down what a message did, and gives the answers that remain of it.
func (e *epp) note(s *session, step string, out []*answer) []*answer {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.picked && !s.counted {
		s.counted = true
		e.carry(s, s.to)
	}
	e.hold(s)
	switch step {
	case "rH":
		e.hearResponse(s)
	case "rE", "rT":
		s.whole = true
	}
	switch {
	case !s.picked:
	case e.refuses != 0:
		return []*answer{retry(refusal(e.refuses))}
	case e.queues:
		if !s.waits {
			s.waits = true
			e.waiting++
		}
		return nil
	}
	return out
}

// carry counts a request at an endpoint; "" = nowhere.
func (e *epp) carry(s *session, endpoint string) {
	if s.carrier != "" && !e.habits.keepsLoad {
		e.load[s.carrier]--
	}
	s.carrier = endpoint
	if endpoint != "" {
		e.load[endpoint]++
	}
}

// hold counts the body until it is answered.
func (e *epp) hold(s *session) {
	holds := int64(len(s.body))
	if e.habits.holdsMore {
		holds *= 3
	}
	if s.picked && !e.habits.holdsOn {
		holds = 0
	}
	e.held += holds - s.holds
	s.holds = holds
}

// hearResponse reads the status, and the endpoint that served.
func (e *epp) hearResponse(s *session) {
	s.whole = s.ended[exchange.Response] || s.modes[exchange.Response].Body == exchange.None
	for _, line := range s.in.GetResponseHeaders().GetHeaders().GetHeaders() {
		if line.GetKey() == ":status" {
			s.status, _ = strconv.Atoi(string(line.GetRawValue())) // 0 = none
		}
	}
	served := servedIn(s.in)
	if served == "" || e.habits.deaf {
		return
	}
	if !slices.Contains(pool, served) {
		served = ""
	}
	e.carry(s, served)
}

func servedIn(m *ask) string {
	if by := m.GetMetadataContext().GetFilterMetadata()[lbNamespace].GetFields()[servedKey].GetStringValue(); by != "" {
		return by
	}
	return m.GetAttributes()["envoy.filters.http.ext_proc"].GetFields()["upstream.address"].GetStringValue()
}

// closed writes down how a stream ended.
func (e *epp) closed(s *session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	end := Ending{Status: s.status, Served: s.carrier, Times: e.ends[s.id].Times + 1}
	if e.habits.countsTwice {
		end.Times++
	}
	if !s.whole && !e.habits.countsAll || e.habits.countsNone {
		end.Reason = "aborted"
	}
	if s.id != "" {
		e.ends[s.id] = end
	}
	e.streams--
	if !e.habits.keepsLoad {
		e.carry(s, "")
	}
	if s.waits && !e.habits.keepsPlace {
		e.waiting--
	}
	if e.habits.keepsCopies {
		e.copies = append(e.copies, s.body)
	}
	if !e.habits.holdsOn {
		e.held -= s.holds
	}
}

// linger keeps a stream that is gone, for a habit.
func (e *epp) linger() {
	if e.habits.keepsStream {
		<-e.stopped
	}
}

// hoard queues what is sent without end.
type hoard struct {
	extprocv3.ExternalProcessor_ProcessServer
	wake chan struct{} // one place; closed in the end
	done chan struct{}

	mu    sync.Mutex
	queue []*answer
}

func newHoard(stream extprocv3.ExternalProcessor_ProcessServer) *hoard {
	q := &hoard{ExternalProcessor_ProcessServer: stream, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go func() {
		defer close(q.done)
		for more := true; more; {
			_, more = <-q.wake
			for _, m := range q.take() {
				_ = stream.Send(m) // a stream that is gone misses it
			}
		}
	}()
	return q
}

func (q *hoard) take() []*answer {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.queue
	q.queue = nil
	return all
}

func (q *hoard) Send(m *answer) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = append(q.queue, m)
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return nil
}

func (q *hoard) close() {
	close(q.wake)
	<-q.done
}

// send hands answers to the stream, in order.
func (e *epp) send(s *session, out []*answer, stream interface{ Send(*answer) error }) error {
	if e.habits.oneLock {
		e.sending.Lock()
		defer e.sending.Unlock()
	}
	for _, m := range out {
		if err := stream.Send(m); err != nil {
			return err
		}
		s.over = s.over || m.GetImmediateResponse() != nil
	}
	return nil
}

// ledger is what a check may see of a book.
func (b *book) ledger() Inside {
	see := func(read func()) {
		b.mu.Lock()
		defer b.mu.Unlock()
		read()
	}
	return Inside{
		Load: func(endpoint string) (n int) { see(func() { n = b.load[endpoint] }); return n },
		Open: func() (n int) { see(func() { n = b.streams }); return n },
		Held: func() (n int64) { see(func() { n = b.held }); return n },
		Ended: func(id string) (e Ending, ok bool) {
			see(func() { e, ok = b.ends[id] })
			return e, ok
		},
	}
}

// retry adds to a refusal when to come again.
func retry(m *answer) *answer {
	m.GetImmediateResponse().Headers.SetHeaders = append(m.GetImmediateResponse().Headers.SetHeaders,
		&corev3.HeaderValueOption{
			Header: &corev3.HeaderValue{Key: "retry-after", RawValue: []byte("1")},
		})
	return m
}
