// Package supervise runs what is no actor and may panic, so that a panic ends neither the process nor what it works on.
// It never decides what is told of a panic.
package supervise

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// Panic is the error that a panic has become.
type Panic struct {
	what  string // what has panicked
	cause any
	stack []byte
}

// HasPanicked stands in the text of each Panic.
const HasPanicked = " has panicked: "

// Error says what has panicked and why, and not where, for it is shown in one line.
func (p *Panic) Error() string { return p.what + HasPanicked + fmt.Sprint(p.cause) }

// IsPanic reports whether an error is of a panic.
func IsPanic(err error) bool {
	var of *Panic
	return errors.As(err, &of)
}

// WithStack returns an error with the stack of the panic that it is of, if it is of one.
func WithStack(err error) error {
	var of *Panic
	if !errors.As(err, &of) {
		return err
	}
	return fmt.Errorf("%w\n%s", err, of.stack)
}

// Recover returns what a function returns, or that it has panicked.
func Recover(what string, do func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = &Panic{what, cause, debug.Stack()}
		}
	}()
	return do()
}

const (
	// restartAfter is how long what has panicked pauses. It doubles each time, up to mostRestartAfter, and begins anew
	// after a run that was longer than that.
	restartAfter     = 100 * time.Millisecond
	mostRestartAfter = 30 * time.Second
)

// KeepRunning runs a function until it returns without a panic, or ctx is done. It calls failed with each panic.
func KeepRunning(ctx context.Context, what string, do func(context.Context), failed func(error)) {
	for pause := restartAfter; ; pause = min(2*pause, mostRestartAfter) {
		began := time.Now()
		err := Recover(what, func() error { do(ctx); return nil })
		if err == nil {
			return
		}
		failed(err)
		if time.Since(began) > mostRestartAfter {
			pause = restartAfter
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}
