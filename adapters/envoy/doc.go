// Package envoy runs an Envoy as a child of this process: it finds the binary, asks its version, starts it, reads its
// admin page, starts it again when it dies, drains it and ends it.
//
// It never writes what Envoy is configured with, and knows of a configuration only two names of the files of this
// project: the cluster of the picker and the prefix of the listener's statistics. An Envoy that it started does not
// outlive this process: on Linux however that ends, elsewhere unless it is killed.
package envoy
