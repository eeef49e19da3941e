// Package flow has as many files as it may, functions at their limits, and functions above.
package flow

func atLimit(a, b int) {
	_ = 1
	_ = 2
	_ = 3
	_ = 4
	_ = 5
	_ = 6
	_ = 7
	_ = 8
	_ = 9
	_ = 10
}

func tooLong() {
	_ = 1
	_ = 2
	_ = 3
	_ = 4
	_ = 5
	_ = 6
	_ = 7
	_ = 8
	_ = 9
	_ = 10
	_ = 11
}

type queue struct{}

func (q *queue) tooMany(a int, b, c string) {}

// The file ends at its limit.
var (
	_ = 1
	_ = 1
	_ = 1
)
