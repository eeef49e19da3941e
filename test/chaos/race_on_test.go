//go:build race

package chaos

const fixedRequests = 3000
