package runtime_test

import (
	"io"
	"log/slog"
	goruntime "runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// protoPlayer plays the lifecycle on protoactor as it comes: its default dispatcher and mailbox, a request a child of
// its shard, which is parent and queue at once.
type protoPlayer struct {
	sys     *actor.ActorSystem
	shards  []*actor.PID
	left    atomic.Int64 // children whose end their parent has heard of
	streams [lifeStreams]chan protoDecision
}

type (
	protoArrived struct {
		stream chan<- protoDecision
	}
	protoBegun    struct{ stream chan<- protoDecision }
	protoAsked    struct{ request *actor.PID }
	protoGiven    struct{ at time.Time }
	protoComplete struct{ status int }
	protoLeft     struct{ id uint64 }
	protoDecision struct {
		request *actor.PID
		at      int
	}
)

func newProtoPlayer(shards int) lifePlayer {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	p := &protoPlayer{
		sys: actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return quiet })),
	}
	request := actor.PropsFromProducer(func() actor.Actor { return &protoRequest{} })
	props := actor.PropsFromProducer(func() actor.Actor { return &protoShard{left: &p.left, request: request} })
	for range shards {
		p.shards = append(p.shards, p.sys.Root.Spawn(props))
	}
	for i := range p.streams {
		p.streams[i] = make(chan protoDecision, 1)
	}
	return p
}

type protoShard struct {
	left    *atomic.Int64
	places  int
	request *actor.Props
}

func (s *protoShard) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *protoArrived:
		ctx.Send(ctx.Spawn(s.request), &protoBegun{m.stream})
	case *protoAsked:
		s.places++
		ctx.Send(m.request, &protoGiven{time.Now()})
	case *protoLeft:
		s.places--
	case *actor.Terminated:
		s.left.Add(1)
	}
}

type protoRequest struct{ stream chan<- protoDecision }

func (r *protoRequest) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *protoBegun:
		r.stream = m.stream
		ctx.Send(ctx.Parent(), &protoAsked{ctx.Self()})
	case *protoGiven:
		r.stream <- protoDecision{ctx.Self(), score(uint64(m.at.Nanosecond()))}
	case *protoComplete:
		ctx.Send(ctx.Parent(), &protoLeft{1})
		ctx.Stop(ctx.Self())
	}
}

func (p *protoPlayer) play(_ *testing.B, requests int) {
	want := int64(requests/lifeStreams*lifeStreams) + p.left.Load()
	playStreams(requests, func(stream int) {
		p.sys.Root.Send(p.shards[stream%len(p.shards)], &protoArrived{p.streams[stream]})
		d := <-p.streams[stream]
		p.sys.Root.Send(d.request, &protoComplete{d.at})
	})
	for p.left.Load() < want {
		goruntime.Gosched()
	}
}

func (p *protoPlayer) close(b *testing.B) {
	for _, s := range p.shards {
		if err := p.sys.Root.StopFuture(s).Wait(); err != nil {
			b.Error(err)
		}
	}
	p.sys.Shutdown()
}
