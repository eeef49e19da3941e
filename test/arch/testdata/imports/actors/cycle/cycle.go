// Package cycle knows too many.
package cycle

import (
	_ "example.test/planted"
	_ "example.test/planted/actors/cycle/inner"
	_ "example.test/planted/actors/flow"
	_ "example.test/planted/adapters/extproc"
	_ "example.test/planted/engine/runtime/runtimetest"
	_ "example.test/planted/engine/schedule"
)
