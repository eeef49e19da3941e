//go:build race

package sim_test

const (
	seedRequests = 300
	longRequests = 2000
	allPlanted   = false // they are built without the race detector: one is enough here
)
