// Package exchange is a proxy's side of one ext_proc stream, with the rules that Envoy enforces in each direction.
//
// It owns what was sent and answered in each direction and the verdict on each answer: accepted, tolerated or fatal,
// with the rule it broke. It applies header mutations as Envoy does.
//
// It never touches HTTP, never picks an upstream, and never decides what a failure means for the client.
package exchange
