//go:build !race

package sim_test

// seedRequests is how many requests a seed plays with, longRequests how many the long run has. meetAll has the fixed
// seeds meet every kind of fault between them.
const (
	seedRequests = 700
	longRequests = 10_000
	meetAll      = true
)
