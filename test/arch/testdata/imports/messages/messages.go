// Package messages imports more than the standard library.
package messages

import (
	_ "example.test/planted/engine/schedule"
	_ "github.com/google/uuid"
	_ "time"
)
