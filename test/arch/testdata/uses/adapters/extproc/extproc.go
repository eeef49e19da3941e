// Package extproc may do all of it.
package extproc

func serve() { go serve() }
