// Package filters holds every filter.
package filters

import "example.test/planted/engine/schedule"

// Types is the table.
var Types = map[string]func() schedule.Plugin{}
