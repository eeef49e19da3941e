// Package profiles holds every profile handler.
package profiles

import "example.test/planted/engine/schedule"

// Types is the table.
var Types = map[string]func() schedule.Plugin{}
