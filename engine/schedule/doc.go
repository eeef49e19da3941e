// Package schedule runs a scheduling cycle: the profiles of one request over the candidates. It holds the contracts of the
// plugins. It decides and does nothing else: it never reads a clock, never counts, never tells anybody.
package schedule
