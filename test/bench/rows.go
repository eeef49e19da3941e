package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/signalbox-epp/signalbox/test/bench/load"
)

// bench runs the rows and prints them.
type bench struct {
	*lab
	out     io.Writer
	rounds  int
	round   time.Duration
	sizes   []int
	streams int
	perSec  int
	mode    load.Mode // of tables that know no other
	large   []byte    // metrics pages
	small   []byte
	missed  int // bars
}

// Cores: the server's, and that of generator and pages.
const (
	serverCore    = "1"
	generatorCore = "0"
	bothCores     = "0,1"
)

// Bars of CPU per request.
const (
	barSmall   = 1.0 // over the floor, below 64 KB
	barLarge   = 0.8 // over the floor, at 64 KB
	barHundred = 1.15
	barIdle    = 0.1         // cores
	barRSS     = 200_000_000 // bytes
)

func barOf(size int) float64 {
	if size >= 64<<10 {
		return barLarge
	}
	return barSmall
}

// modes by name.
var modes = map[string]load.Mode{"full": load.FullDuplex, "light": load.Light, "streamed": load.Streamed,
	"buffered": load.Buffered}

// shape is the usual request, with an answer of four chunks.
func (b *bench) shape(bodyBytes int) load.Shape {
	return load.Shape{Mode: b.mode, BodyBytes: bodyBytes, Chunks: 4}
}

// bar reports whether a figure is within its bar, and counts if it is not.
func (b *bench) bar(got, limit float64) string {
	if got <= limit {
		return fmt.Sprintf("≤ %s", figure(limit))
	}
	b.missed++
	return fmt.Sprintf("**> %s**", figure(limit))
}

func (b *bench) printf(format string, args ...any) { fmt.Fprintf(b.out, format, args...) }

func (b *bench) head(title string, columns ...string) {
	b.printf("\n%s\n\n| %s |\n|%s\n", title, strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
}

func (b *bench) row(cells ...string) { b.printf("| %s |\n", strings.Join(cells, " | ")) }

// against loads servers in turns at every size, and prints a line for each; the first is the floor.
func (b *bench) against(title string, connections int, names []string, servers []*process, run loading) error {
	b.head(title, "request body", "server", "CPU µs/request", "÷ floor (min–max)", "bar", "requests/s", "cores",
		"allocations", "pick p50 µs", "p99", "p99.9")
	for _, size := range b.sizes {
		all, err := load.Scripts(b.shape(size))
		if err != nil {
			return err
		}
		var targets []*target
		for i, p := range servers {
			g, err := load.NewGenerator(p.address, connections, all)
			if err != nil {
				return err
			}
			defer g.Close()
			targets = append(targets, &target{names[i], p, g})
		}
		s, err := alternate(targets, b.rounds, run)
		if err != nil {
			return err
		}
		b.print(size, names, s)
	}
	return nil
}

func (b *bench) print(size int, names []string, s shots) {
	for i, name := range names {
		mid, lo, hi := s.ratio(i, 0)
		ratio, bar := "1", ""
		if i > 0 {
			ratio = fmt.Sprintf("%.2f (%.2f–%.2f)", mid, lo, hi)
		}
		if strings.HasPrefix(name, "Signalbox") {
			bar = b.bar(mid, barOf(size))
		}
		get := func(of func(shot) float64) string { return figure(s.median(i, of)) }
		b.row(fmt.Sprintf("%d KB", size>>10), name, get(func(s shot) float64 { return s.cpu }), ratio, bar,
			get(func(s shot) float64 { return s.perSecond }), get(func(s shot) float64 { return s.cores }),
			get(func(s shot) float64 { return s.mallocs }), get(func(s shot) float64 { return s.p50 }),
			get(func(s shot) float64 { return s.p99 }), get(func(s shot) float64 { return s.p999 }))
	}
	switch len(names) {
	case 3:
		b.compare(size, s, pair{"the other ÷ Signalbox", 2, 1, 0})
	case 4:
		b.compare(size, s, pair{"Signalbox, 10 endpoints ÷ tuned floor", 2, 1, 0})
		b.compare(size, s, pair{"100 endpoints ÷ 10 endpoints", 3, 2, barHundred})
	}
}

// pair are two targets that are held against each other.
type pair struct {
	what    string
	i, over int
	bar     float64 // 0 = none
}

// compare prints a ratio other than that over the floor.
func (b *bench) compare(size int, s shots, p pair) {
	mid, lo, hi := s.ratio(p.i, p.over)
	verdict := ""
	if p.bar > 0 {
		verdict = b.bar(mid, p.bar)
	}
	b.row(fmt.Sprintf("%d KB", size>>10), p.what, "", fmt.Sprintf("%.2f (%.2f–%.2f)", mid, lo, hi), verdict)
}

// pinned is the main table: server and generator on a core each, so many streams all the time.
func (b *bench) pinned() error {
	servers, err := b.start(
		func() (*process, error) { return b.floor(serverCore, false) },
		func() (*process, error) { return b.floor(serverCore, true) },
		func() (*process, error) { return b.box(serverCore, 10) },
		func() (*process, error) { return b.box(serverCore, 100) },
	)
	if err != nil {
		return err
	}
	names := []string{"floor", "floor, tuned", "Signalbox, 10 endpoints", "Signalbox, 100 endpoints"}
	return b.against(fmt.Sprintf("Closed loop, %d streams, server on one core", b.streams), 1, names, servers,
		b.closedLoad())
}

// versus holds another binary against this one.
func (b *bench) versus(ctx context.Context, binary string) error {
	if err := pin(ctx, generatorCore); err != nil {
		return err
	}
	servers, err := b.start(
		func() (*process, error) { return b.floor(serverCore, false) },
		func() (*process, error) { return b.box(serverCore, 10) },
		func() (*process, error) {
			b.signalbox = binary
			return b.box(serverCore, 10)
		},
	)
	if err != nil {
		return err
	}
	return b.against("Two binaries", 1, []string{"floor", "Signalbox", "Signalbox, " + binary}, servers, b.closedLoad())
}

func (b *bench) closedLoad() loading {
	return func(g *load.Generator) (load.Result, error) { return g.Closed(b.streams, b.round) }
}

func (b *bench) start(all ...func() (*process, error)) ([]*process, error) {
	var out []*process
	for _, begin := range all {
		p, err := begin()
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func (b *bench) floorAndBox(cores string, more ...string) ([]*process, error) {
	return b.start(
		func() (*process, error) { return b.floor(cores, false) },
		func() (*process, error) { return b.box(cores, 10, more...) },
	)
}

var pairNames = []string{"floor", "Signalbox, 10 endpoints"}

// fixed loads at a rate that leaves the servers idle most of the time, so that requests come one by one.
func (b *bench) fixed() error {
	servers, err := b.floorAndBox(serverCore)
	if err != nil {
		return err
	}
	return b.against(fmt.Sprintf("Open loop, %d requests/s, server on one core", b.perSec), 1, pairNames, servers,
		func(g *load.Generator) (load.Result, error) { return g.Open(b.perSec, b.round) })
}

// unpinned has servers and generator share both cores.
func (b *bench) unpinned() error {
	servers, err := b.floorAndBox(bothCores, "--shards", "2")
	if err != nil {
		return err
	}
	return b.against(fmt.Sprintf("Closed loop, %d streams, nothing pinned, two loops", b.streams), 2, pairNames,
		servers, b.closedLoad())
}

// idle has nothing to do but to scrape 100 endpoints with long pages.
func (b *bench) idle() error {
	b.endpoints.page.Store(&b.large)
	defer b.endpoints.page.Store(&b.small)
	// so that timers that are late still make one a second
	p, err := b.box(serverCore, 100, "--refresh-metrics-interval", "900ms")
	if err != nil {
		return err
	}
	<-time.After(2 * time.Second) // the first pages come in a burst
	d := b.round * time.Duration(b.rounds)
	from, scrapes := time.Now(), b.endpoints.scrapes.Load()
	before, err := p.cpu()
	if err != nil {
		return err
	}
	<-time.After(d)
	after, err := p.cpu()
	if err != nil {
		return err
	}
	took := time.Since(from).Seconds()
	each := float64(b.endpoints.scrapes.Load()-scrapes) / took / 100
	cores := (after - before).Seconds() / took
	rss, err := p.rss()
	b.head(fmt.Sprintf("Idle: 100 endpoints, pages of %d KB", len(b.large)>>10), "cores", "bar", "pages/s from each",
		"RSS MB")
	pages := figure(each)
	if each < 1 {
		b.missed++
		pages += " **< 1**"
	}
	b.row(figure(cores), b.bar(cores, barIdle), pages, figure(float64(rss)/1e6))
	return err
}

// memory is what is held after many long bodies at once.
func (b *bench) memory() error {
	const streams, size = 256, 64 << 10
	servers, err := b.floorAndBox(serverCore)
	if err != nil {
		return err
	}
	all, err := load.Scripts(b.shape(size))
	if err != nil {
		return err
	}
	b.head(fmt.Sprintf("Memory after 64 KB × %d streams", streams), "server", "RSS MB", "bar", "requests")
	for i, p := range servers {
		g, err := load.NewGenerator(p.address, 1, all)
		if err != nil {
			return err
		}
		defer g.Close()
		r, err := g.Closed(streams, 5*b.round)
		if err != nil {
			return err
		}
		rss, err := p.rss()
		if err != nil {
			return err
		}
		bar := ""
		if i == 1 {
			bar = b.bar(float64(rss), barRSS)
			bar = strings.Replace(bar, figure(barRSS), figure(barRSS/1e6), 1)
		}
		b.row(pairNames[i], figure(float64(rss)/1e6), bar, figure(float64(r.Requests)))
	}
	return nil
}
