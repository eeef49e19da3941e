package records_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/records"
)

func TestNamesAreLabels(t *testing.T) {
	n, long := records.NewNames(8), strings.Repeat("x", 200)
	if n.Has("") {
		t.Error("the empty set has a label")
	}
	n.Add("a", long, "a", "b\xff")
	for label, want := range map[string]bool{"a": true, long[:records.LabelBytes]: true, long: false, "b\uFFFD": true,
		"c": false} {
		if got := n.Has(label); got != want {
			t.Errorf("Has(%q) = %t, want %t", label, got, want)
		}
	}
}

func TestNamesHaveALimit(t *testing.T) {
	n := records.NewNames(3)
	n.Add("a", "b")
	n.Add("c", "d", "a")
	n.Add("e")
	for label, want := range map[string]bool{"a": true, "b": true, "c": true, "d": false, "e": false} {
		if got := n.Has(label); got != want {
			t.Errorf("Has(%q) = %t, want %t", label, got, want)
		}
	}
}

func TestNamesOfAllLoopsAreKept(t *testing.T) {
	n := records.NewNames(1000)
	var loops sync.WaitGroup
	for loop := range 4 {
		loops.Go(func() {
			for i := range 100 {
				n.Add(fmt.Sprint(loop, " ", i))
			}
		})
	}
	loops.Wait()
	for i := range 400 {
		if label := fmt.Sprint(i/100, " ", i%100); !n.Has(label) {
			t.Errorf("%q is missing", label)
		}
	}
}

func TestKnownNamesCostNothing(t *testing.T) {
	n := records.NewNames(10)
	n.Add("a", "b")
	if allocs := testing.AllocsPerRun(100, func() { n.Add("a"); n.Has("b"); n.Has("c") }); allocs != 0 {
		t.Errorf("%v allocations, want 0", allocs)
	}
}
