// Package cycle is an actor with a clock of its own.
package cycle

import "time"

func onTimer() { <-time.After(time.Second) }
