// Package messages is the language of a house that keeps every rule.
package messages

// Sink takes messages of one kind.
type Sink[M any] interface{ Tell(m M) bool }

// List is a sequence that nobody can change.
type List[T any] struct{ items []T }

// Map is a mapping that nobody can change.
type Map[K comparable, V any] struct{ items map[K]V }

// RequestID is ours.
type RequestID uint64
