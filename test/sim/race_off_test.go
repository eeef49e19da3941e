//go:build !race

package sim_test

const defaultRequests = 10_000
