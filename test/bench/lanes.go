package main

import (
	"fmt"

	"github.com/signalbox-epp/signalbox/test/bench/load"
)

const (
	barChunk    = 1.2 // over the floor, of each chunk of a long answer
	longAnswer  = 10_000
	longStreams = 16 // each carries one long answer a round
)

// column is a load of one server, by its place among the servers, and one shape.
type column struct {
	name   string
	server int
	shape  load.Shape
}

// columns loads servers in turns, each by its shapes.
func (b *bench) columns(servers []*process, all []column, run loading) (shots, error) {
	var targets []*target
	for _, c := range all {
		scripts, err := load.Scripts(c.shape)
		if err != nil {
			return nil, err
		}
		g, err := load.NewGenerator(servers[c.server].address, 1, scripts)
		if err != nil {
			return nil, err
		}
		defer g.Close()
		targets = append(targets, &target{c.name, servers[c.server], g})
	}
	return alternate(targets, b.rounds, run)
}

// over is the ratio of two columns, with the lowest and the highest.
func over(s shots, i, floor int) string {
	if i == floor {
		return "1"
	}
	mid, lo, hi := s.ratio(i, floor)
	return fmt.Sprintf("%.2f (%.2f–%.2f)", mid, lo, hi)
}

// modes are those in which a proxy keeps bodies: the floor speaks each of them.
func (b *bench) modes() error {
	servers, err := b.floorAndBox(serverCore)
	if err != nil {
		return err
	}
	b.head(fmt.Sprintf("Other body modes, closed loop, %d streams, server on one core", b.streams),
		"mode, both directions", "request body", "server", "CPU µs/request", "÷ floor (min–max)", "requests/s",
		"allocations", "pick p50 µs", "p99")
	for _, mode := range []struct {
		name string
		load.Mode
	}{{"STREAMED", load.Streamed}, {"BUFFERED", load.Buffered}} {
		for _, size := range b.sizes[1:] {
			shape := load.Shape{Mode: mode.Mode, BodyBytes: size, Chunks: 4}
			all := []column{{pairNames[0], 0, shape}, {pairNames[1], 1, shape}}
			s, err := b.columns(servers, all, b.closedLoad())
			if err != nil {
				return err
			}
			for i, c := range all {
				get := func(of func(shot) float64) string { return figure(s.median(i, of)) }
				b.row(mode.name, fmt.Sprintf("%d KB", size>>10), c.name, get(func(s shot) float64 { return s.cpu }),
					over(s, i, 0),
					get(func(s shot) float64 { return s.perSecond }), get(func(s shot) float64 { return s.mallocs }),
					get(func(s shot) float64 { return s.p50 }), get(func(s shot) float64 { return s.p99 }))
			}
		}
	}
	return nil
}

// lanes holds the light lane against the full one, and each against the floor in it. In the light lane an entry of the
// access log ends each request.
func (b *bench) lanes() error {
	servers, err := b.floorAndBox(serverCore)
	if err != nil {
		return err
	}
	b.head(fmt.Sprintf("Lanes, 8 KB requests, closed loop, %d streams, server on one core", b.streams),
		"response", "lane", "server", "CPU µs/request", "÷ floor in the same lane (min–max)", "÷ Signalbox, full lane",
		"requests/s", "allocations")
	for _, chunks := range []int{8, 1000} {
		full := load.Shape{Mode: load.FullDuplex, BodyBytes: 8 << 10, Chunks: chunks}
		light := load.Shape{Mode: load.Light, BodyBytes: 8 << 10, Chunks: chunks}
		all := []column{{"full", 0, full}, {"full", 1, full}, {"light", 0, light}, {"light", 1, light}}
		s, err := b.columns(servers, all, b.closedLoad())
		if err != nil {
			return err
		}
		for i, c := range all {
			floor, lighter := over(s, i, i-c.server), ""
			if c.server == 1 {
				lighter = over(s, i, 1)
			}
			get := func(of func(shot) float64) string { return figure(s.median(i, of)) }
			b.row(fmt.Sprintf("%d chunks", chunks), c.name, pairNames[c.server],
				get(func(s shot) float64 { return s.cpu }), floor, lighter,
				get(func(s shot) float64 { return s.perSecond }), get(func(s shot) float64 { return s.mallocs }))
		}
	}
	return endsLogged(servers[1])
}

// endsLogged is an error unless the access log ended the requests of the light lane.
func endsLogged(p *process) error {
	ended, err := p.series(`signalbox_logged_ends_total{result="ended"}`)
	if err != nil {
		return err
	}
	late, err := p.series(`signalbox_logged_ends_total{result="late"}`)
	if err == nil && (ended < 100 || late > ended/100) {
		err = fmt.Errorf("the access log ended %.0f requests, and %.0f had ended before", ended, late)
	}
	return err
}

// chunks is the full lane with answers so long that their chunks are all that counts.
func (b *bench) chunks() error {
	servers, err := b.floorAndBox(serverCore)
	if err != nil {
		return err
	}
	shape := load.Shape{Mode: load.FullDuplex, BodyBytes: 8 << 10, Chunks: longAnswer}
	s, err := b.columns(servers, []column{{pairNames[0], 0, shape}, {pairNames[1], 1, shape}},
		func(g *load.Generator) (load.Result, error) {
			return g.Closed(longStreams, 0)
		})
	if err != nil {
		return err
	}
	b.head(fmt.Sprintf("Long answers: %d chunks each, %d streams at a time, server on one core", longAnswer,
		longStreams),
		"server", "CPU µs/chunk", "÷ floor (min–max)", "bar", "chunks/s", "allocations/chunk")
	for i, name := range pairNames {
		verdict := ""
		if i > 0 {
			mid, _, _ := s.ratio(i, 0)
			verdict = b.bar(mid, barChunk)
		}
		b.row(name, figure(s.median(i, func(s shot) float64 { return s.cpu / longAnswer })), over(s, i, 0), verdict,
			figure(s.median(i, func(s shot) float64 { return s.perSecond * longAnswer })),
			figure(s.median(i, func(s shot) float64 { return s.mallocs / longAnswer })))
	}
	return nil
}
