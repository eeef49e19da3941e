//go:build !race

package chaos

// fixedRequests is how many requests come unless told; allPlanted says that every planted fault is tried.
const (
	fixedRequests = 20_000
	allPlanted    = true
)
