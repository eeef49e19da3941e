//go:build race

package parsers_test

const raceOn = true
