package discovery

import (
	"context"
	"testing"
)

func TestLifeRunsOnce(t *testing.T) {
	for name, end := range map[string]func(*Life, context.CancelFunc){
		"its context is done": func(_ *Life, cancel context.CancelFunc) { cancel() },
		"it is closed":        func(l *Life, _ context.CancelFunc) { l.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			l, began, runs := NewLife(), make(chan struct{}), 0
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			run := func(ctx context.Context) {
				runs++
				close(began)
				<-ctx.Done()
			}
			go func() {
				defer close(ended)
				l.Run(ctx, run)
			}()
			<-began
			l.Run(ctx, run) // returns at once
			end(l, cancel)
			<-ended
			<-l.Done()
			if l.Close(); runs != 1 {
				t.Errorf("it ran %d times, want once", runs)
			}
		})
	}
}

func TestClosedLifeNeverBegins(t *testing.T) {
	l := NewLife()
	l.Close()
	l.Run(t.Context(), func(context.Context) { t.Error("it runs") })
	l.Close()
}
