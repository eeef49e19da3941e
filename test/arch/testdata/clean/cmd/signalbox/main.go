// Command signalbox wires it.
package main

import (
	_ "example.test/planted/actors/cycle"
	_ "example.test/planted/adapters/extproc"
)

func main() {}
