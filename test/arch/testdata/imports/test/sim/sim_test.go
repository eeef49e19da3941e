// Package sim may know all but commands and other tests.
package sim

import (
	_ "example.test/planted"
	_ "example.test/planted/actors/cycle"
	_ "example.test/planted/adapters/secrets/secretstest"
	_ "example.test/planted/cmd/signalbox"
	_ "example.test/planted/test/bench"
)
