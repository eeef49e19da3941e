// Package planted joins actors, and knows no adapter.
package planted

import (
	_ "example.test/planted/actors/cycle"
	_ "example.test/planted/adapters/extproc"
	_ "example.test/planted/cmd/signalbox"
	_ "example.test/planted/engine/schedule"
	_ "example.test/planted/messages"
)
