// Package e2e knows the code that it tests.
package e2e

import (
	_ "example.test/planted/adapters/telemetry/terminaltest"
	_ "example.test/planted/messages"
)
