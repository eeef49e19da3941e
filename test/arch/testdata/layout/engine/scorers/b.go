// Package scorers is documented here, too.
package scorers
