// Package pickers holds every picker.
package pickers

import "example.test/planted/engine/schedule"

// Types is the table.
var Types = map[string]func() schedule.Plugin{}
