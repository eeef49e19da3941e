//go:build race

package overload

// fewSeeds is how many seeds are played with without -seeds. Under the race detector a play takes ten times as long.
const fewSeeds = 1
