// Command signalbox wires everything, but nothing from test.
package main

import (
	_ "example.test/planted"
	_ "example.test/planted/actors/cycle"
	_ "example.test/planted/adapters/extproc"
	_ "example.test/planted/adapters/secrets/secretstest"
	_ "example.test/planted/deploy"
	_ "example.test/planted/test/sim"
)

func main() {}
