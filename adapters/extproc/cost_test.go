package extproc

import (
	"context"
	"io"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/messages"
)

// loop is a wire.Stream that plays the same frames to each stream and drops what it is answered.
type loop struct {
	ctx    context.Context
	frames []mem.BufferSlice
	at     int
}

func newLoop(b *testing.B, list []*ask) *loop {
	b.Helper()
	l := &loop{ctx: b.Context()}
	for _, m := range list {
		raw, err := proto.Marshal(m)
		if err != nil {
			b.Fatal(err)
		}
		l.frames = append(l.frames, mem.BufferSlice{mem.SliceBuffer(raw)})
	}
	return l
}

func (l *loop) Context() context.Context { return l.ctx }

func (l *loop) Recv(r *wire.Request) error {
	r.Release()
	if l.at == len(l.frames) {
		return io.EOF
	}
	l.at++
	return wire.Codec{}.Unmarshal(l.frames[l.at-1], r)
}

func (l *loop) Send(r *wire.Response) error {
	frame, err := wire.Codec{}.Marshal(r)
	frame.Free()
	return err
}

// deaf is the port of a cycle that is told and does nothing.
type deaf struct{}

func (deaf) Post(messages.CycleMsg) bool { return true }

// BenchmarkStream serves whole streams whose picks are there at once: what a request costs here beside its cycle, by
// the messages that the proxy shows.
func BenchmarkStream(b *testing.B) {
	light := with(withModes(qH(more), whole, none), qB(chat, last), rH(more))
	full := asked(rH(more))
	for range 20 {
		full = append(full, rB("data: {\"choices\":[{\"delta\":{\"content\":\" word\"}}]}\n\n", more))
	}
	for name, list := range map[string][]*ask{"light lane": light, "full lane, 20 chunks": append(full, rB("", last))} {
		b.Run(name, func(b *testing.B) {
			made := messages.PickMade{Destinations: messages.ListOf[messages.Address]("10.0.0.1:8000", "10.0.0.2:8000")}
			r := newRig(setup{})
			r.inForce.Start = func(m messages.RequestArrived) (messages.Port[messages.CycleMsg], bool) {
				m.Stream.Tell(made)
				return deaf{}, true
			}
			l := newLoop(b, list)
			b.ReportAllocs()
			for b.Loop() {
				l.at = 0
				if err := r.srv.Process(l); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
