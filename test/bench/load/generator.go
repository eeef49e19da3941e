package load

import (
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Result is what one round of load came to.
type Result struct {
	Requests int
	Elapsed  time.Duration
	Picks    []time.Duration // latencies, sorted
	Late     int             // requests of an open loop for which no place was free
}

// Quantile is that of the pick's latency; 0 without any.
func (r *Result) Quantile(q float64) time.Duration {
	if len(r.Picks) == 0 {
		return 0
	}
	return r.Picks[min(int(q*float64(len(r.Picks))), len(r.Picks)-1)]
}

// Generator loads one server over some connections.
type Generator struct {
	scripts []*Script
	conns   []*conn
	failed  chan error
	number  atomic.Uint64

	mu       sync.Mutex // of result
	result   Result
	running  sync.WaitGroup // exchanges
	stopping atomic.Bool
}

// NewGenerator connects to a server.
func NewGenerator(server string, connections int, all []*Script) (*Generator, error) {
	g := &Generator{scripts: all, failed: make(chan error, connections)}
	for range connections {
		c, err := dial(server)
		if err != nil {
			return nil, errors.Join(err, g.Close())
		}
		g.conns = append(g.conns, c)
		go func() {
			if err := c.read(); !errors.Is(err, net.ErrClosed) {
				g.failed <- err
			}
		}()
	}
	return g, nil
}

func (g *Generator) Close() error {
	var all []error
	for _, c := range g.conns {
		all = append(all, c.nc.Close())
	}
	return errors.Join(all...)
}

func (g *Generator) place(i int, finish func(*exchange)) *exchange {
	x := &exchange{gen: g, stream: stream{conn: g.conns[i%len(g.conns)]}, finish: finish}
	x.owner = x
	return x
}

func (g *Generator) picked(took time.Duration) {
	g.mu.Lock()
	g.result.Picks = append(g.result.Picks, took)
	g.mu.Unlock()
}

func (g *Generator) ended() {
	g.mu.Lock()
	g.result.Requests++
	g.mu.Unlock()
}

// Closed keeps that many streams open for a while, and waits until all have ended.
func (g *Generator) Closed(streams int, d time.Duration) (Result, error) {
	next := func(x *exchange) {
		g.ended()
		if g.stopping.Load() {
			g.running.Done()
			return
		}
		x.begin(time.Time{})
	}
	began := g.reset()
	for i := range streams {
		x := g.place(i, next)
		g.running.Add(1)
		if err := x.start(time.Time{}); err != nil {
			return Result{}, err
		}
	}
	if err := g.wait(d); err != nil {
		return Result{}, err
	}
	return g.end(began)
}

// Open begins requests at a fixed rate, whatever becomes of them, and waits until all have ended.
func (g *Generator) Open(perSecond int, d time.Duration) (Result, error) {
	const places = 2048
	free := make(chan *exchange, places)
	for i := range places {
		free <- g.place(i, func(x *exchange) {
			g.ended()
			free <- x
			g.running.Done()
		})
	}
	began := g.reset()
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	total := int(d.Seconds() * float64(perSecond))
	for n := 0; n < total; {
		due := began.Add(time.Duration(n) * time.Second / time.Duration(perSecond))
		if time.Until(due) > 0 {
			select {
			case <-tick.C:
			case err := <-g.failed:
				return Result{}, err
			}
			continue
		}
		n++
		select {
		case x := <-free:
			g.running.Add(1)
			if err := x.start(due); err != nil {
				return Result{}, err
			}
		default:
			g.mu.Lock()
			g.result.Late++
			g.mu.Unlock()
		}
	}
	return g.end(began)
}

func (g *Generator) reset() time.Time {
	g.mu.Lock()
	g.result = Result{Picks: make([]time.Duration, 0, 1<<16)}
	g.mu.Unlock()
	g.stopping.Store(false)
	return time.Now()
}

func (g *Generator) wait(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case err := <-g.failed:
		return err
	}
}

// end waits for what still runs.
func (g *Generator) end(began time.Time) (Result, error) {
	g.stopping.Store(true)
	done := make(chan struct{})
	go func() {
		g.running.Wait()
		close(done)
	}()
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	select {
	case <-done:
	case err := <-g.failed:
		return Result{}, err
	case <-late.C:
		return Result{}, errors.New("requests that have not ended after a minute")
	}
	for _, c := range g.conns {
		if err := c.logAll(); err != nil {
			return Result{}, err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.result
	r.Elapsed = time.Since(began)
	slices.Sort(r.Picks)
	return r, nil
}
