package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/signalbox-epp/signalbox/engine/clip"
)

// The feature gates that there are. A standby always knows the endpoints, so that the second one cannot be turned off.
const (
	flowGate    = "flowControl"
	standbyGate = "haPopulateNonLeaderDatastore"
)

// olderGates are feature gates of older files: what they switched on is always there, or is gone.
var olderGates = []string{"dataLayer", "enableLegacyMetrics", "prepareDataPlugins"}

// olderGate reports whether a feature gate is one of older files.
func olderGate(gate string) bool {
	name, _, _ := strings.Cut(gate, "=")
	return slices.Contains(olderGates, name)
}

func (l *loader) gates(list []string) {
	for i, gate := range list {
		at := item("featureGates", i)
		if hint, err := CheckGate(gate); err != nil {
			l.Fail(at, "%v", err)
		} else if hint != "" {
			l.Warn(at, "%s", hint)
		}
	}
	l.gated = flowControl(slices.Concat(list, l.defaults.Gates))
}

// flowControl returns whether these feature gates, of which the last counts, turn flow control on.
func flowControl(gates []string) bool {
	on := false
	for _, gate := range gates {
		if name, value, _ := gateOf(gate); name == flowGate {
			on = value
		}
	}
	return on
}

// gateOf returns what a feature gate says: its name alone, or with =true or =false, as Go writes these.
func gateOf(gate string) (name string, on bool, err error) {
	name, value, given := strings.Cut(gate, "=")
	if !given {
		return name, true, nil
	}
	on, err = strconv.ParseBool(value)
	return name, on, err
}

// CheckGate returns what is wrong with a feature gate, or why it has no effect; "" = it has one.
func CheckGate(gate string) (hint string, err error) {
	name, on, bad := gateOf(gate)
	switch shown := clip.Value(name); {
	case bad != nil:
		return "", fmt.Errorf("got %q, want %s=true or %s=false", clip.Value(gate), shown, shown)
	case name == flowGate, name == standbyGate && on:
		return "", nil
	case name == standbyGate:
		return shown + "=false has no effect: a standby knows the endpoints too; leave it out", nil
	case slices.Contains(olderGates, name):
		return shown + " has no effect, leave it out", nil
	case !on:
		return fmt.Sprintf("unknown feature gate %q, which is off; known are %s and %s", shown, flowGate,
			standbyGate), nil
	}
	return "", fmt.Errorf("unknown feature gate %q, known are %s and %s", clip.Value(name), flowGate, standbyGate)
}

// falseTexts are the texts that strconv.ParseBool reads as false, trueTexts those that it reads as true.
const (
	falseTexts = "0|f|F|FALSE|false|False"
	trueTexts  = "1|t|T|TRUE|true|True"
)

// gateValues returns the entries of featureGates that editors offer, and gatePattern the form of all that Load takes.
func gateValues() (values []any) {
	for _, name := range []string{flowGate, standbyGate} {
		values = append(values, name, name+"=true", name+"=false")
	}
	return values
}

func gatePattern() string {
	known := strings.Join(slices.Concat([]string{flowGate, standbyGate}, olderGates), "|")
	return "^(" + known + ")(=(" + trueTexts + "))?$|=(" + falseTexts + ")$"
}
