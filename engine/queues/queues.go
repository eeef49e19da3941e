// Package queues holds every type of queue: each has a file, and a line in Types. A queue keeps the requests of one
// flow and class in an order. It knows no limits and no other queue.
package queues

import "github.com/signalbox-epp/signalbox/engine/flow"

// Types maps the type name in configuration to a constructor. What the queues of a type can do decides which orderings
// they serve.
var Types = map[string]func() flow.QueueType{
	"list-queue":   func() flow.QueueType { return new(ListQueue) },
	"max-min-heap": func() flow.QueueType { return new(MaxMinHeap) },
}
