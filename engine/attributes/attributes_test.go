package attributes_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/attributes"
)

var watts = attributes.Attribute{Name: "example.com/watts", Type: attributes.Number, Unit: "W"}

func TestSlotsAreSharedByReadersOfOneAttribute(t *testing.T) {
	var b attributes.Binding
	b.Emit("core", attributes.QueuedRequests, attributes.ActiveLoRAs, watts)
	one, two := b.Reader("one"), b.Reader("two")
	queued, power := one.Number(attributes.QueuedRequests.Name, ""), one.Number(watts.Name, "core")
	again, adapters := two.Number(attributes.QueuedRequests.Name, ""), two.Names(attributes.ActiveLoRAs.Name, "")
	if queued != again || queued == power || queued.Index() != 0 || power.Index() != 1 || adapters.Index() != 0 {
		t.Errorf("slots %v, %v, %v, %v; want one for each attribute", queued, power, again, adapters)
	}
	if (attributes.NumberSlot{}).Index() != -1 || (attributes.NamesSlot{}).Index() != -1 {
		t.Error("the zero slot is of an attribute")
	}
	l, faults := b.Layout()
	if len(faults) > 0 {
		t.Fatalf("faults %v", faults)
	}
	if got := l.Of(attributes.Number); !slices.Equal(got, []attributes.Attribute{attributes.QueuedRequests, watts}) {
		t.Errorf("numbers %v", got)
	}
	if got := two.Slots(); len(got) != 2 || l.At(got[0]) != attributes.QueuedRequests ||
		l.At(got[1]) != attributes.ActiveLoRAs {
		t.Errorf("the second reader has %v", got)
	}
	if !l.Reads(attributes.KVCacheUsage, watts) || l.Reads(attributes.KVCacheUsage) {
		t.Error("Reads does not tell what is read")
	}
	if !l.ReadsFrom(attributes.Sampled) || l.ReadsFrom(attributes.Counted) {
		t.Error("ReadsFrom does not tell where from")
	}
}

// Each fault names both sides.
func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		declare func(b *attributes.Binding)
		want    string
	}{
		"nothing emits it": {func(b *attributes.Binding) {
			b.Reader("queue").Number("queued-requests", "")
		}, "queue reads queued-requests, which nothing emits"},
		"another emits it": {func(b *attributes.Binding) {
			b.Emit("core", attributes.QueuedRequests)
			b.Reader("queue").Number("queued-requests", "mine")
		}, "queue reads queued-requests of mine, which does not emit it"},
		"two emit it": {func(b *attributes.Binding) {
			b.Emit("core", watts)
			b.Emit("mine", watts)
			b.Reader("power").Number(watts.Name, "")
		}, "power reads example.com/watts, which core and mine emit: name one of them"},
		"two share it": {func(b *attributes.Binding) {
			b.EmitShared("mine", watts)
			b.EmitShared("yours", watts)
			b.Reader("power").Number(watts.Name, "")
		}, ""},
		"one of them does not share it": {func(b *attributes.Binding) {
			b.EmitShared("mine", watts)
			b.Emit("core", watts)
			b.Reader("power").Number(watts.Name, "")
		}, "power reads example.com/watts, which mine and core emit: name one of them"},
		"another type": {func(b *attributes.Binding) {
			b.Emit("core", watts)
			b.Reader("power").Names(watts.Name, "")
		}, "power reads example.com/watts as names, and core emits it as number"},
		"two emit it, and one is named": {func(b *attributes.Binding) {
			b.Emit("core", watts)
			b.Emit("mine", watts)
			b.Reader("power").Number(watts.Name, "mine")
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var b attributes.Binding
			c.declare(&b)
			_, faults := b.Layout()
			got := ""
			for _, f := range faults {
				got += f.Text
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// Plugins that know a built-in attribute read it beside one of the file with its name, which others read by that name.
func TestOwnAttributeWithTheNameOfABuiltInOne(t *testing.T) {
	own := attributes.Attribute{Name: attributes.QueuedRequests.Name}
	var b attributes.Binding
	b.Emit("core", attributes.QueuedRequests, own)
	queue, named := b.Reader("queue"), b.Reader("named")
	first, second := queue.Number(own.Name, ""), named.Named(own.Name, "core")
	l, faults := b.Layout()
	if len(faults) > 0 || first == second {
		t.Fatalf("faults %v, slots %v and %v", faults, first, second)
	}
	if got := l.Of(attributes.Number); !slices.Equal(got, []attributes.Attribute{attributes.QueuedRequests, own}) {
		t.Errorf("reads %v, want the built-in one, then the own one", got)
	}
	if own.BuiltIn() || !attributes.QueuedRequests.BuiltIn() {
		t.Error("BuiltIn goes by the name alone")
	}
	var alone attributes.Binding
	alone.Emit("core", attributes.QueuedRequests)
	alone.Reader("named").Named(own.Name, "")
	if l, faults := alone.Layout(); len(faults) > 0 || l.Of(attributes.Number)[0] != attributes.QueuedRequests {
		t.Errorf("without an own one: faults %v", faults)
	}
}

func TestHeadersHaveOneSlotInAnyCase(t *testing.T) {
	var b attributes.Binding
	one, two := b.Reader("one"), b.Reader("two")
	session, path, again := one.Header("X-Session-ID"), one.Header(":path"), two.Header("x-session-id")
	if session != again || session.Index() != 0 || path.Index() != 1 || (attributes.HeaderSlot{}).Index() != -1 {
		t.Errorf("slots %v, %v, %v, want one for each header", session, path, again)
	}
	l, faults := b.Layout()
	if want := []string{"x-session-id", ":path"}; len(faults) > 0 || !slices.Equal(l.Headers(), want) {
		t.Errorf("headers %v, faults %v, want %v", l.Headers(), faults, want)
	}
}

func TestHeadersThatCannotBeRead(t *testing.T) {
	for name, want := range map[string]string{
		"":             `p reads the header "", which HTTP does not have`,
		"with a space": `p reads the header "with a space", which HTTP does not have`,
		"näme":         `p reads the header "näme", which HTTP does not have`,
	} {
		var b attributes.Binding
		b.Reader("p").Header(name)
		if _, faults := b.Layout(); len(faults) != 1 || faults[0].Reader != "p" || faults[0].Text != want {
			t.Errorf("%q: faults %+v, want %q", name, faults, want)
		}
	}
	var b attributes.Binding
	for i := range 33 {
		b.Reader(fmt.Sprint("p", i)).Header(fmt.Sprint("x-", i))
	}
	want := "p32 reads a header beyond the 32 that plugins may read together"
	if _, faults := b.Layout(); len(faults) != 1 || faults[0].Text != want {
		t.Errorf("33 headers: faults %+v, want %q", faults, want)
	}
}
