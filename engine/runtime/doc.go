// Package runtime runs actors on sharded event loops. It owns the clock, the goroutines, the timers and protoactor, so that
// nobody else does: every actor is a real, supervised protoactor child whose mailbox is a place in its loop's inbox.
//
// A loop runs one item at a time. In combining mode, whoever posts from outside an actor drains the loops that are ready,
// at most Budget items, and hands the rest to a goroutine; in goroutine mode each loop has its own; in stepped mode nothing
// runs until Step is called. It knows nothing of requests, endpoints or messages: it moves them.
package runtime
