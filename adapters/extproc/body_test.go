package extproc

import (
	"testing"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/signalbox-epp/signalbox/adapters/extproc/held"
	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/messages"
)

// received is a chunk of n bytes.
func received(t *rapid.T, n int) *wire.Request {
	t.Helper()
	raw, err := proto.Marshal(qB(string(make([]byte, n)), more))
	if err != nil {
		t.Fatal(err)
	}
	in := new(wire.Request)
	if err := (wire.Codec{}).Unmarshal(mem.BufferSlice{mem.SliceBuffer(raw)}, in); err != nil {
		t.Fatal(err)
	}
	return in
}

// TestBodyGivesItsBudgetBackOnce plays any calls to a body beside another one: what both count is what their buffers
// take, a body is lent at most once and keeps its bytes until it is released, and in the end all of the budget is there
// again, not more.
func TestBodyGivesItsBudgetBackOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := held.NewBudget(64 << 10)
		other := requestBody{budget: all}
		if other.take(received(t, 100), 1000) != messages.NoReason {
			t.Fatal("the other body is not taken")
		}
		rest := all.Held()
		b := requestBody{budget: all}
		lent := 0
		check := func(t *rapid.T) {
			if got, want := all.Held()-rest, b.counted; got != want || got > 0 && b.state == bodyGone {
				t.Fatalf("%d bytes of the budget are held in state %d, %d counted", got, b.state, want)
			}
			if room := int64(cap(b.buffer.Bytes())); room != b.counted {
				t.Fatalf("the buffer has room for %d bytes, %d are counted", room, b.counted)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": check,
			"reserve": func(t *rapid.T) { // a header tells the length, once, before a chunk comes
				if told := rapid.IntRange(1, 1<<20).Draw(t, "told"); b.counted == 0 {
					b.reserve(told)
				}
			},
			"take": func(t *rapid.T) {
				n, before, state := rapid.IntRange(0, 40_000).Draw(t, "bytes"), b.came, b.state
				why := b.take(received(t, n), 100_000)
				if took := b.came != before; took && (why != messages.NoReason || state != bodyOpen ||
					b.came > 100_000) {
					t.Fatalf("took %d bytes in state %d with reason %v", n, state, why)
				}
			},
			"expect": func(*rapid.T) { b.expect(time.Hour, func() {}) },
			"lend": func(t *rapid.T) {
				bytes, ok := b.lend()
				if ok {
					lent++
				}
				if lent > 1 || ok && int64(len(bytes)) != b.came {
					t.Fatalf("lent %d times, %d bytes of %d", lent, len(bytes), b.came)
				}
			},
			"settle": func(t *rapid.T) {
				before := string(b.buffer.Bytes())
				b.settle()
				if string(b.buffer.Bytes()) != before || b.state == bodyLent && b.counted > b.came+8<<10 {
					t.Fatalf("%d bytes are counted for %d once it has settled", b.counted, b.came)
				}
			},
			"giveUp": func(t *rapid.T) {
				was := b.state
				if b.giveUp(); was == bodyLent && b.state != bodyLent || was == bodyOpen && b.state != bodyGone {
					t.Fatalf("state %d leads to %d", was, b.state)
				}
			},
			"release": func(*rapid.T) { b.release() },
		})
		b.release()
		b.release()
		other.release()
		if got := all.Held(); got != 0 {
			t.Fatalf("%d bytes of the budget are held in the end", got)
		}
	})
}
