package supervise

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What panics pauses for longer each time, and shortly again after a run that lasted.
func TestPausesAfterPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lasts := append(make([]time.Duration, 12), 29*time.Second, 31*time.Second, 0, 0)
		ms := func(all ...int) (pauses []time.Duration) {
			for _, n := range all {
				pauses = append(pauses, time.Duration(n)*time.Millisecond)
			}
			return pauses
		}
		want := ms(100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000, 30000, 30000, 100, 200, 400)
		var got []time.Duration
		ended, runs, failures := time.Now(), 0, 0
		KeepRunning(t.Context(), "the test", func(context.Context) {
			if runs > 0 {
				got = append(got, time.Since(ended))
			}
			if runs == len(lasts) {
				return // without a panic
			}
			<-time.After(lasts[runs])
			runs++
			ended = time.Now()
			panic("again")
		}, func(err error) {
			if failures++; err.Error() != "the test has panicked: again" || !strings.Contains(WithStack(err).Error(),
				"TestPausesAfterPanics") {
				t.Errorf("the error is %q, want what has panicked, and where by its stack", WithStack(err))
			}
		})
		if diff := cmp.Diff(want, got); diff != "" || failures != len(lasts) {
			t.Errorf("%d failures, want %d; pauses, -want +got: %s", failures, len(lasts), diff)
		}

		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		KeepRunning(ctx, "the test", func(context.Context) { panic("once") }, func(error) { cancel() })
		if took := time.Since(began); took > 0 {
			t.Errorf("it ends %v after its context, want at once", took)
		}
	})
}
