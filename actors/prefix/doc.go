// Package prefix keeps the prefix index in step with the life of requests. Its actor is the only writer of the index
// and owns, for each live request that was placed, which blocks the request entered and where.
//
// It never looks anything up for a decision (cycles read the index themselves, without a message), never sees prompt
// text, and never mistakes one incarnation of an endpoint for another: it drops messages about an older generation of a
// slot.
package prefix
