//go:build race

package sim_test

const seedRequests = 150
