// Package flow does what only the runtime may.
package flow

type queue struct{}

func (q *queue) run() {
	go q.run()
	q.run() //nolint:errcheck // another linter than depguard and forbidigo
	q.run() //nolint:errcheck,forbidigo // it wants the time
	q.run() // nolint
	q.run() //nolint:all // of no use
}
