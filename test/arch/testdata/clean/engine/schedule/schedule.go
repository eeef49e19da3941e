// Package schedule holds the contracts.
package schedule

// Plugin is any plugin.
type Plugin interface{ Run() }
