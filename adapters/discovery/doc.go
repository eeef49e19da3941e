// Package discovery tells the pool which endpoints there are, from a file that it watches.
//
// It owns the format of the file, the watch, and the last addresses of host names in it. While the file is bad or a
// name does not resolve, the last good set stays in force. It sends no request to a model server; at most it opens a
// connection, to choose between IPv4 and IPv6.
package discovery
