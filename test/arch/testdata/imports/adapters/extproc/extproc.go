// Package extproc knows an actor and another adapter.
package extproc

import (
	_ "example.test/planted"
	_ "example.test/planted/actors/cycle"
	_ "example.test/planted/adapters/extproc/wire"
	_ "example.test/planted/adapters/proxy"
	_ "example.test/planted/engine/schedule"
)
