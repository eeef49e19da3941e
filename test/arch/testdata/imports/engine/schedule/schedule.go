// Package schedule reaches up and out.
package schedule

import (
	_ "example.test/planted"
	_ "example.test/planted/actors/cycle"
	_ "example.test/planted/adapters/extproc"
	_ "example.test/planted/cmd/signalbox"
	_ "example.test/planted/engine/config"
	_ "example.test/planted/messages"
	_ "example.test/planted/test/sim"
)
