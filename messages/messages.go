// Package messages defines every message that actors send, and the values that messages carry. Each receiving actor has
// one file, which holds everything that it can be told. The package computes nothing.
//
// A message that begins work has the method Refusable: a full inbox of its receiver may refuse it. Every other message
// ends something, answers, or gives something back. It is always taken, and the number of such messages is bounded by
// the number of live requests.
package messages

import "iter"

// Sink is an address that actors hold: of another actor, or of an adapter. Tell enqueues a message and never blocks. It
// returns false if the receiver is gone or full, and the sender decides what follows.
type Sink[M any] interface{ Tell(m M) bool }

// Port is an actor's address for code outside the runtime. Post enqueues a message and then runs the loops that have
// work, so hold no lock when you call it. It returns false if the actor is gone or full. Adapters hold Ports and never
// Sinks of actors: a message that is only enqueued would wait until something else runs the actor's loop.
type Port[M any] interface{ Post(m M) bool }

// List is an immutable sequence. The zero List is empty.
type List[T any] struct{ items []T }

// ListOf returns a list of a copy of items.
func ListOf[T any](items ...T) List[T] {
	if len(items) == 0 {
		return List[T]{}
	}
	return List[T]{items: append(make([]T, 0, len(items)), items...)}
}

// TakeList returns a list of items without a copy: the caller gives the slice away and never touches it again.
func TakeList[T any](items []T) List[T] { return List[T]{items: items} }

// Len returns the number of items.
func (l List[T]) Len() int { return len(l.items) }

// At returns item i, from 0. It panics if there is none.
func (l List[T]) At(i int) T { return l.items[i] }

// First returns a list of the first n items, or of all if there are fewer.
func (l List[T]) First(n int) List[T] { return List[T]{items: l.items[:min(n, len(l.items))]} }

// All ranges over the items with their indices.
func (l List[T]) All() iter.Seq2[int, T] {
	return func(yield func(int, T) bool) {
		for i, x := range l.items {
			if !yield(i, x) {
				return
			}
		}
	}
}

// Append appends copies of the items to dst and returns it.
func (l List[T]) Append(dst []T) []T { return append(dst, l.items...) }

// Map is an immutable map. The zero Map is empty. It has no order: sort the keys where order matters.
type Map[K comparable, V any] struct{ items map[K]V }

// MapOf returns a map of a copy of items.
func MapOf[K comparable, V any](items map[K]V) Map[K, V] {
	if len(items) == 0 {
		return Map[K, V]{}
	}
	c := make(map[K]V, len(items))
	for k, v := range items {
		c[k] = v
	}
	return Map[K, V]{items: c}
}

// Len returns the number of entries.
func (m Map[K, V]) Len() int { return len(m.items) }

// Get returns the value of a key, and whether the map has one.
func (m Map[K, V]) Get(k K) (V, bool) { v, ok := m.items[k]; return v, ok }

// All ranges over the entries, in no particular order.
func (m Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for k, v := range m.items {
			if !yield(k, v) {
				return
			}
		}
	}
}
