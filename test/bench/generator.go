package main

import (
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// result is what one round of load came to.
type result struct {
	requests int
	elapsed  time.Duration
	picks    []time.Duration // latencies, sorted
	late     int             // requests of an open loop for which no place was free
}

// quantile is that of the pick's latency; 0 without any.
func (r *result) quantile(q float64) time.Duration {
	if len(r.picks) == 0 {
		return 0
	}
	return r.picks[min(int(q*float64(len(r.picks))), len(r.picks)-1)]
}

// generator loads one server over some connections.
type generator struct {
	scripts []*script
	conns   []*conn
	failed  chan error
	number  atomic.Uint64

	mu       sync.Mutex // of result
	result   result
	running  sync.WaitGroup // exchanges
	stopping atomic.Bool
}

func newGenerator(address string, connections int, all []*script) (*generator, error) {
	g := &generator{scripts: all, failed: make(chan error, connections)}
	for range connections {
		c, err := dial(address)
		if err != nil {
			return nil, errors.Join(err, g.close())
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

func (g *generator) close() error {
	var all []error
	for _, c := range g.conns {
		all = append(all, c.nc.Close())
	}
	return errors.Join(all...)
}

func (g *generator) place(i int, finish func(*exchange)) *exchange {
	return &exchange{gen: g, conn: g.conns[i%len(g.conns)], finish: finish}
}

func (g *generator) picked(took time.Duration) {
	g.mu.Lock()
	g.result.picks = append(g.result.picks, took)
	g.mu.Unlock()
}

func (g *generator) ended() {
	g.mu.Lock()
	g.result.requests++
	g.mu.Unlock()
}

// closed keeps that many streams open for a while, and waits until all have ended.
func (g *generator) closed(streams int, d time.Duration) (result, error) {
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
			return result{}, err
		}
	}
	if err := g.wait(d); err != nil {
		return result{}, err
	}
	return g.end(began)
}

// open begins requests at a fixed rate, whatever becomes of them, and waits until all have ended.
func (g *generator) open(perSecond int, d time.Duration) (result, error) {
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
				return result{}, err
			}
			continue
		}
		n++
		select {
		case x := <-free:
			g.running.Add(1)
			if err := x.start(due); err != nil {
				return result{}, err
			}
		default:
			g.mu.Lock()
			g.result.late++
			g.mu.Unlock()
		}
	}
	return g.end(began)
}

func (g *generator) reset() time.Time {
	g.mu.Lock()
	g.result = result{picks: make([]time.Duration, 0, 1<<16)}
	g.mu.Unlock()
	g.stopping.Store(false)
	return time.Now()
}

func (g *generator) wait(d time.Duration) error {
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
func (g *generator) end(began time.Time) (result, error) {
	g.stopping.Store(true)
	done := make(chan struct{})
	go func() {
		g.running.Wait()
		close(done)
	}()
	late := time.NewTimer(10 * time.Second)
	defer late.Stop()
	select {
	case <-done:
	case err := <-g.failed:
		return result{}, err
	case <-late.C:
		return result{}, errors.New("requests that have not ended after 10 s")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.result
	r.elapsed = time.Since(began)
	slices.Sort(r.picks)
	return r, nil
}
