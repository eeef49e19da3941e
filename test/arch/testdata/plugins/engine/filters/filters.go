// Package filters makes its table at run time.
package filters

import "example.test/planted/engine/schedule"

// Types is made by a call.
var Types = table()

func table() map[string]func() schedule.Filter { return nil }
