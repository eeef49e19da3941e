//go:build race

package chaos

const (
	fixedRequests = 3000
	allPlanted    = false // they are built without the race detector: one is enough here
)
