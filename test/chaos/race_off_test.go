//go:build !race

package chaos

// fixedRequests is how many requests come unless told.
const fixedRequests = 20_000
