package extproc

import (
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// The names of models that clients make up do not make up series without end.
func TestDecisionsAreBounded(t *testing.T) {
	d := newDecisions()
	for i := range 2 * mostDecisions {
		d.count("r", "m"+strconv.Itoa(i), "t")
		d.count("r", "m0", "t")
	}
	d.count("r", strings.Repeat("x", 10_000), "t")
	if got := testutil.CollectAndCount(d.counter); got != mostDecisions+1 {
		t.Errorf("%d series, want %d and other", got, mostDecisions)
	}
	if got := testutil.ToFloat64(d.counter.WithLabelValues("r", "m0", "t")); got != 2*mostDecisions+1 {
		t.Errorf("m0 is counted %v times, want %d", got, 2*mostDecisions+1)
	}
	if got := testutil.ToFloat64(d.counter.WithLabelValues("other", "other", "other")); got != mostDecisions+1 {
		t.Errorf("%v others, want %d", got, mostDecisions+1)
	}
}
