// Package pickers has its table in another file.
package pickers

// Types stands in the wrong place.
var Types = map[string]func() any{}
