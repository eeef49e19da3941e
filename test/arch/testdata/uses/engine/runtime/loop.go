// Package runtime owns clock, goroutines and locks.
package runtime

import _ "os" //nolint:depguard // it has no other freedom

func start() { go start() }
