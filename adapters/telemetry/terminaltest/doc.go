// Package terminaltest opens pseudo-terminals for tests, on Linux. It owns how they are opened and how wide they are.
// It never reads or draws: what a test sees on its terminal, and when it closes it, is the test's own.
package terminaltest
