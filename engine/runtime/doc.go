// Package runtime runs actors on sharded event loops. It owns the clock, the goroutines, the timers and protoactor, and
// no other package does: every actor is a real, supervised protoactor child whose mailbox is a place in its loop's
// inbox.
//
// A loop runs one item at a time. In combining mode, a goroutine that posts to a Port runs the loops that are runnable,
// at most Budget items, and hands the rest to a goroutine of its own; in stepped mode nothing runs until Step is
// called. The package knows nothing of requests, endpoints or messages: it moves them.
package runtime
