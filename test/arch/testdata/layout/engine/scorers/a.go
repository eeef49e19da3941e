// Package scorers is documented here.
package scorers
