//go:build race

package sim_test

const defaultRequests = 2000
