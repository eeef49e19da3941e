package overload

import (
	"context"
	"errors"
	"time"

	"github.com/signalbox-epp/signalbox"
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// apart is by how much the clocks of two pickers may differ.
const apart = time.Millisecond

// pickers returns all pickers.
func (w *World) pickers() []*signalbox.Picker {
	if w.second == nil {
		return []*signalbox.Picker{w.picker}
	}
	return []*signalbox.Picker{w.picker, w.second}
}

// pickerOf returns the picker that has a request.
func (w *World) pickerOf(id messages.RequestID) *signalbox.Picker {
	all := w.pickers()
	return all[int(id)%len(all)]
}

// beginSecond starts the second picker, if there is one. Each picker has a system of its own, and so a clock.
func (w *World) beginSecond() (err error) {
	if !w.play.Second {
		return nil
	}
	if w.second, err = w.newPicker(); err != nil {
		return err
	}
	for _, p := range w.pickers() {
		role := runtime.Role[tick]{Name: "pace", New: func() runtime.Actor[tick] { return pace{} }}
		if _, ok := runtime.Start(p.System().Root(0), role, tick{}); !ok {
			return errors.New("a pace was refused")
		}
	}
	return nil
}

// playUntil runs all pickers up to a time, in turns, so that their clocks hardly differ.
func (w *World) playUntil(end time.Time) {
	step := apart
	if w.second == nil {
		step = end.Sub(start)
	}
	for at := start; at.Before(end); {
		at = at.Add(step)
		for _, p := range w.pickers() {
			for p.System().Now().Before(at) && p.System().Step() {
			}
		}
	}
}

func (w *World) close() error {
	var errs []error
	for _, p := range w.pickers() {
		errs = append(errs, p.Close(context.Background()))
	}
	return errors.Join(errs...)
}

// pace has something to do at every moment, so that a clock does not run ahead.
type pace struct{}

type tick struct{}

// Receive asks for the next tick.
func (pace) Receive(ctx runtime.Context[tick], _ tick) { ctx.After(apart, tick{}) }

// Stopped holds nothing.
func (pace) Stopped(runtime.Context[tick]) {}
