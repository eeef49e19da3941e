// Package cycle is an actor that knows another clock.
package cycle

import "time"

//nolint:depguard // it is small
func onTimer() { <-time.After(time.Second) } //nolint:forbidigo // it waits
