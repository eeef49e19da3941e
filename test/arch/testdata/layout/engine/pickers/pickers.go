// Package pickers is well kept.
package pickers
