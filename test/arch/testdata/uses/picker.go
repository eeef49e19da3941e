// Package planted joins actors.
package planted

func start() { go start() }
