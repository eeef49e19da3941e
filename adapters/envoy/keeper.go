package envoy

import (
	"context"
	"fmt"
	"strings"
	"time"
)

const (
	firstPause   = 250 * time.Millisecond // before Envoy is started again
	longestPause = 8 * time.Second
	// shortRun is the length below which a run counts as short.
	shortRun = 5 * time.Second
	// shortRuns in a row end the attempts: Envoy is not started again.
	shortRuns = 5
)

// Event is something that happened to an Envoy that is kept running.
type Event struct {
	Process int           // id of the process
	URL     string        // where clients connect, once Envoy serves; "" = it has ended
	Admin   string        // URL of the admin page, once Envoy serves; "" = it has ended
	How     string        // how it ended, such as "signal: killed"; "" = it serves
	Pause   time.Duration // until it is started again; 0 = it serves
}

// Keeper keeps one Envoy running: one that dies is started again, after a pause that doubles from run to short run.
//
//	            ┌──────────── the pause is over ────────────┐
//	            ▼                                           │
//	starting ──────► running ──── it ended ─────────────► pausing
//	    │               │  │
//	    │ no process    │  └─ it ended, the fifth short run in a row ─► gave up, told by Failed
//	    │               │
//	    ▼               └─ Settle ─► left to the caller
//	 gave up
type Keeper struct {
	cfg    Config
	told   func(Event)
	failed chan error
	cancel context.CancelFunc
	ended  chan struct{}

	current *Process // written by run alone, read after its end; nil = none runs
}

// Keep starts Envoy. told is called with each event, one after the other.
func Keep(cfg Config, told func(Event)) *Keeper {
	ctx, cancel := context.WithCancel(context.Background())
	k := &Keeper{cfg: cfg, told: told, failed: make(chan error, 1), cancel: cancel, ended: make(chan struct{})}
	go k.run(ctx)
	return k
}

// Failed returns a channel that gets the error with which the keeper gave up, if it does.
func (k *Keeper) Failed() <-chan error { return k.failed }

// Settle stops the keeper: from now on Envoy is not started again. It returns the process that runs, which the caller
// ends; nil = there is none.
func (k *Keeper) Settle() *Process {
	k.cancel()
	<-k.ended
	return k.current
}

func (k *Keeper) run(ctx context.Context) {
	defer close(k.ended)
	pause, short := firstPause, 0
	for ctx.Err() == nil {
		began := time.Now()
		p, err := Start(k.cfg)
		if err != nil {
			k.failed <- err
			return
		}
		k.current = p
		if k.follow(ctx, p); !p.Gone() {
			return // ctx is done, and Settle returns the process
		}
		k.current = nil
		if short++; time.Since(began) >= shortRun {
			pause, short = firstPause, 0
		}
		if short == shortRuns {
			k.failed <- gaveUp(p)
			return
		}
		k.told(Event{Process: p.ID(), How: p.How(), Pause: pause})
		wait(ctx, pause)
		pause = min(2*pause, longestPause)
	}
}

// follow waits until the process is gone or ctx is done, and tells when it serves.
func (k *Keeper) follow(ctx context.Context, p *Process) {
	if url, err := p.Ready(ctx); err == nil {
		admin, _ := p.admin() // it is known, for Ready has asked it
		k.told(Event{Process: p.ID(), URL: url, Admin: admin})
	}
	select {
	case <-p.Ended():
	case <-ctx.Done():
	}
}

func gaveUp(p *Process) error {
	said := "it said nothing"
	if last := p.LastLines(); len(last) > 0 {
		said = "its last lines:\n  " + strings.Join(last, "\n  ")
	}
	return fmt.Errorf("envoy ended %d times within %v of its start, the last time with %s, "+
		"and is not started again; %s", shortRuns, shortRun, p.How(), said)
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
