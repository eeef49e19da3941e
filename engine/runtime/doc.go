// Package runtime runs actors on sharded event loops. It alone owns the clock, the goroutines, the timers and
// protoactor. Every actor is a supervised protoactor child, but has no queue of its own: all actors of a loop share the
// loop's inbox.
//
// A loop runs one item at a time. In combining mode, the goroutine that posts to a Port runs runnable loops itself, for
// at most Budget items, and hands the rest to a helper goroutine. In stepped mode nothing runs until Step is called.
// The package knows nothing of requests, endpoints or the meaning of messages.
package runtime
