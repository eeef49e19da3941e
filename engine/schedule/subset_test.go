package schedule

import (
	"fmt"
	"slices"
	"testing"

	"github.com/signalbox-epp/signalbox/messages"
)

func addresses(from, to int) []messages.Address {
	var out []messages.Address
	for i := from; i < to; i++ {
		out = append(out, messages.Address(fmt.Sprintf("10.0.%d.%d:8000", i/256, i%256)))
	}
	return out
}

func given(list []messages.Address) messages.Subset {
	return messages.Subset{Given: true, Addresses: messages.ListOf(list...)}
}

func TestSubsetOfAnyLengthAdmitsItsOwn(t *testing.T) {
	pool := addresses(0, 100)
	var a allowed // of one loop: what one request brought must not stay for the next
	for _, n := range []int{60, 0, 1, fewAddresses, fewAddresses + 1, 4096, 3} {
		inside := append(addresses(50, 50+n), "10.9.9.9:1")
		inside = append(inside, inside[0]) // twice
		a.restrict(given(inside))
		for _, address := range pool {
			if got, want := a.admits(address), slices.Contains(inside, address); got != want {
				t.Errorf("subset of %d: %s admitted %v, want %v", n, address, got, want)
			}
		}
		a.forget()
		if len(a.many) != 0 || !a.admits("10.9.9.9:1") {
			t.Errorf("subset of %d stays after its request", n)
		}
	}
	a.restrict(messages.Subset{Given: true})
	if a.admits(pool[0]) {
		t.Error("an empty subset admits an endpoint")
	}
}

func TestSubsetDoesNotAllocate(t *testing.T) {
	for _, n := range []int{fewAddresses, 4096} {
		subset, a := given(addresses(0, n)), allowed{}
		a.restrict(subset) // the first long one makes the map
		a.forget()
		if got := testing.AllocsPerRun(100, func() {
			a.restrict(subset)
			a.admits("10.0.0.7:8000")
			a.forget()
		}); got != 0 {
			t.Errorf("subset of %d: %v allocations, want 0", n, got)
		}
	}
}

// BenchmarkSubset restricts a pool of 1 000 endpoints.
func BenchmarkSubset(b *testing.B) {
	pool := addresses(0, 1000)
	for _, n := range []int{1, fewAddresses, fewAddresses + 1, 64, 4096} {
		subset := given(addresses(500, 500+n))
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var a allowed
			b.ReportAllocs()
			for b.Loop() {
				a.restrict(subset)
				for _, address := range pool {
					a.admits(address)
				}
				a.forget()
			}
		})
	}
	b.Run("4096 one by one", func(b *testing.B) {
		list := addresses(500, 4596)
		found := 0
		for b.Loop() {
			for _, address := range pool {
				if slices.Contains(list, address) {
					found++
				}
			}
		}
		if found == 0 {
			b.Error("no endpoint is in the subset")
		}
	})
}
