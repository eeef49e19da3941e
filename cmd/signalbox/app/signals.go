package app

import (
	"context"
	"os"
	"syscall"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/envoy"
)

// endSignals receives the signals that end the command. A command may have further signals than SIGINT and SIGTERM sent
// here.
var endSignals = make(chan os.Signal, 2)

// sameSignalWithin is how long after the first signal others count as the same one: a terminal sends Ctrl-C to all
// processes in the foreground, and a parent such as make or go run may pass on what it got itself.
const sameSignalWithin = 500 * time.Millisecond

// endOnSignals ends the command in good order at the first signal, and the process at once at the second.
func endOnSignals(signals <-chan os.Signal, stop context.CancelFunc, program string) {
	second := secondSignal(signals, stop)
	envoy.KillAll()
	lastWords(os.Stderr, program+": ended at once by a second signal: "+second.String()+"\n")
	code := 1
	if number, ok := second.(syscall.Signal); ok {
		code = 128 + int(number) // as a shell has it
	}
	os.Exit(code)
}

// secondSignal calls stop at the first signal, and returns the next one that comes sameSignalWithin or more after it.
func secondSignal(signals <-chan os.Signal, stop context.CancelFunc) os.Signal {
	<-signals
	stop()
	for first := time.Now(); ; {
		if next := <-signals; time.Since(first) >= sameSignalWithin {
			return next
		}
	}
}
