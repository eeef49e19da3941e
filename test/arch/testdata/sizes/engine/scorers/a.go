// Package scorers is a family and has as many files as plugins.
package scorers
