// Command signalbox is an Endpoint Picker for LLM inference: Envoy asks it, over ext_proc, which model server serves a
// request. It wires actors, engine and adapters together, and never does their work itself.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/signalbox-epp/signalbox/adapters/telemetry"
)

func main() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go heed(signals, stop)
	if err := newRoot().ExecuteContext(ctx); err != nil {
		lastWords(os.Stderr, "signalbox: "+err.Error()+"\n")
		var quiet exitError
		if errors.As(err, &quiet) {
			os.Exit(int(quiet))
		}
		os.Exit(1)
	}
}

// heed ends the command in good order at the first signal, and the process at once at the second.
func heed(signals <-chan os.Signal, stop context.CancelFunc) {
	<-signals
	stop()
	second := <-signals
	lastWords(os.Stderr, "signalbox: ended at once by a second signal: "+second.String()+"\n")
	code := 1
	if number, ok := second.(syscall.Signal); ok {
		code = 128 + int(number) // as a shell has it
	}
	os.Exit(code)
}

// lastWords writes to a reader that may have stopped reading, which must not hold up the end.
func lastWords(w io.Writer, text string) {
	s := telemetry.NewSink(w, 1<<20, func(uint64) []byte { return nil })
	_, _ = s.Write([]byte(text))
	_ = s.Close()
}

// exitError is an exit status without a fault: a check that did not hold.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// newRoot is the command tree. Without a command it serves.
func newRoot() *cobra.Command {
	o := newOptions()
	root := &cobra.Command{
		Use:           "signalbox",
		Short:         "Endpoint Picker for LLM inference behind Envoy",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), o) },
	}
	o.register(root.Flags())
	so := newOptions()
	serving := &cobra.Command{
		Use:   "serve",
		Short: "Serve ext_proc to Envoy (the default command)",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), so) },
	}
	so.register(serving.Flags())
	root.AddCommand(serving, newSim(), newExplain(), newPlugins(), newConfig(), newVersion(), newTree(), newDemo())
	return root
}
