// Package parsers reads the request and response bodies of the inference APIs. It owns the rules by which bytes become
// the facts of messages.Request and messages.Usage.
//
// A request body is read once, front to back, by a scanner that builds no tree: what is not needed is checked and
// skipped. An encoded body is decoded into memory of the package for as long as it is read; what that costs is bounded.
// A response body is looked at for its usage object only, piece by piece, whatever the pieces. The package never keeps
// a slice of a body, never changes a byte of one, never decides what a client is answered, and does no I/O.
package parsers
