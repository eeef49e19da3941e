// Package envoy runs an Envoy as a child of this process: it finds the binary, asks its version, starts it, reads its
// admin page, starts it again when it dies, drains it and ends it.
//
// It never writes a configuration of Envoy. Of the configurations of this project it knows only two names: the cluster
// of the picker and the prefix of the listener's statistics. An Envoy that it started does not outlive this process: on
// Linux in any case, on other systems unless this process is killed.
package envoy
