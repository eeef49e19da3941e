// Package schedule holds the contracts.
package schedule

// Scorer scores.
type Scorer interface{ Score() float32 }

// Filter filters.
type Filter interface{ Filter() bool }
