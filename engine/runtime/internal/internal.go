// Package internal holds what only the packages under engine/runtime may name. It does nothing.
package internal

// Tests is the key to runtime.Inspection: runtimetest has it, and nothing that serves.
type Tests struct{}
