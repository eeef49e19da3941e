package app

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/actors/recorder"
	"github.com/signalbox-epp/signalbox/actors/shard"
	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// bookCycle keeps the book as a cycle does, and nothing else.
type bookCycle struct {
	book *records.Book
	id   messages.RequestID
}

func (c *bookCycle) Receive(ctx runtime.Context[messages.CycleMsg], m messages.CycleMsg) {
	switch m := m.(type) {
	case messages.RequestArrived:
		c.id = m.Request.ID
		c.book.Begin(c.id, ctx.Self())
	case messages.CycleQueried:
		m.Recorder.Tell(messages.RecordsFound{Query: m.Query, Records: messages.ListOf(messages.Record{Request: c.id, Running: true})})
	case messages.StreamGone:
		ctx.Stop()
	}
}

func (c *bookCycle) Stopped(runtime.Context[messages.CycleMsg]) {
	c.book.End(messages.Record{Request: c.id})
}

// asker keeps the recorder's answer.
type asker struct{ got *messages.RecordsAnswered }

func (a *asker) Tell(m messages.AdminMsg) bool {
	got := m.(messages.RecordsAnswered)
	a.got = &got
	return true
}

// TestRequestsThatEndWhileTheyAreAskedForAreFound ends requests at any moment of a query, in orders that the seed draws.
func TestRequestsThatEndWhileTheyAreAskedForAreFound(t *testing.T) {
	const loops, requests = 3, 30
	for seed := range uint64(300) {
		s := runtime.New(runtime.Config{Mode: runtime.Stepped, Loops: loops, Seed: seed, Start: time.Unix(1_800_000_000, 0)})
		draw := rand.New(rand.NewPCG(seed, 1))
		var shards []messages.Sink[messages.ShardMsg]
		var cycles []runtime.Ref[messages.CycleMsg]
		for i := range loops {
			book := records.NewBook(requests, 1<<20)
			a, _ := runtime.Start(s.Root(i), runtime.Role[messages.ShardMsg]{
				Name: "shard", New: func() runtime.Actor[messages.ShardMsg] {
					return shard.New(book, shard.NewMetrics(prometheus.NewRegistry()), func(*messages.Record) {})
				},
			}, messages.ShardMsg(messages.ShardStarted{Shard: i}))
			shards = append(shards, a)
			for n := range requests / loops {
				c, _ := runtime.Start(a, runtime.Role[messages.CycleMsg]{
					Name: "cycle", New: func() runtime.Actor[messages.CycleMsg] { return &bookCycle{book: book} },
				}, messages.CycleMsg(messages.RequestArrived{Request: messages.Request{ID: messages.RequestID(1 + i + loops*n)}}))
				cycles = append(cycles, c)
			}
		}
		rec, _ := runtime.Start(s.Root(0), runtime.Role[messages.RecorderMsg]{
			Name: "recorder", New: func() runtime.Actor[messages.RecorderMsg] { return recorder.New(shards) },
		}, messages.RecorderMsg(messages.RecorderStarted{}))
		s.StepUntil(0)
		a := new(asker)
		rec.Tell(messages.RequestQueried{Newest: requests, Admin: a})
		for _, i := range draw.Perm(len(cycles)) {
			for range draw.IntN(6) {
				s.Step()
			}
			cycles[i].Tell(messages.StreamGone{})
		}
		s.StepUntil(time.Millisecond)
		switch {
		case a.got == nil:
			t.Errorf("seed %d: no answer within a millisecond", seed)
		case a.got.Partial || a.got.Records.Len() != requests:
			t.Errorf("seed %d: %d records, partial %v, want %d and all", seed, a.got.Records.Len(), a.got.Partial, requests)
		}
		if err := s.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}
