// Package messages is the language of the house: every message that actors send, and the values that they carry.
// One file for each actor that receives, holding all that it can be told. It never computes anything.
//
// A message that begins work has the method Refusable: its receiver's inbox may refuse it when it is full. Every other
// message ends, answers or gives back; it is always taken, and its number is bounded by live requests.
package messages

import "iter"

// Sink takes messages of one kind. Tell never blocks; false means the receiver is gone or full, and the sender decides.
// It is what actors hold of others, and of adapters that they tell.
type Sink[M any] interface{ Tell(m M) bool }

// Port takes messages for an actor from outside the runtime: whatever is no actor holds Ports, never Sinks of actors,
// for a message that is only told would wait until something else runs the actor's loop. Post runs loops that are
// ready, so hold no lock; false means that the actor is gone or full.
type Port[M any] interface{ Post(m M) bool }

// List is a sequence that nobody can change. The zero List is empty.
type List[T any] struct{ items []T }

// ListOf makes a list of a copy of items.
func ListOf[T any](items ...T) List[T] {
	if len(items) == 0 {
		return List[T]{}
	}
	return List[T]{items: append(make([]T, 0, len(items)), items...)}
}

// TakeList makes a list of items without a copy: the caller gives the slice away and never touches it again.
func TakeList[T any](items []T) List[T] { return List[T]{items: items} }

// Len is the number of items.
func (l List[T]) Len() int { return len(l.items) }

// At is item i, 0 the first.
func (l List[T]) At(i int) T { return l.items[i] }

// All ranges over index and item.
func (l List[T]) All() iter.Seq2[int, T] {
	return func(yield func(int, T) bool) {
		for i, x := range l.items {
			if !yield(i, x) {
				return
			}
		}
	}
}

// Append copies the items behind those of dst.
func (l List[T]) Append(dst []T) []T { return append(dst, l.items...) }

// Map is a mapping that nobody can change. The zero Map is empty. It has no order: sort the keys where order matters.
type Map[K comparable, V any] struct{ items map[K]V }

// MapOf makes a map of a copy of items.
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

// Len is the number of entries.
func (m Map[K, V]) Len() int { return len(m.items) }

// Get is the value of a key, and whether it has one.
func (m Map[K, V]) Get(k K) (V, bool) { v, ok := m.items[k]; return v, ok }

// All ranges over the entries, in no order.
func (m Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for k, v := range m.items {
			if !yield(k, v) {
				return
			}
		}
	}
}
