// Package wire may know its parent, and not the neighbour.
package wire

import (
	_ "example.test/planted/adapters/extproc"
	_ "example.test/planted/adapters/proxy/conformance"
)
