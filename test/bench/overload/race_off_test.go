//go:build !race

package overload

const fewSeeds = 2
