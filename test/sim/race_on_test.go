//go:build race

package sim_test

const (
	seedRequests = 300
	longRequests = 2000
)
