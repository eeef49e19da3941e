// Package schedule decides which endpoints serve a request: it runs the profiles of a plan over the candidates. It
// holds the contracts of the plugins. It never reads a clock, never counts, and never sends a message.
package schedule
