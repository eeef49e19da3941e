//go:build race

package sim_test

const (
	seedRequests = 300
	longRequests = 2000
	meetAll      = false // that takes more requests
)
