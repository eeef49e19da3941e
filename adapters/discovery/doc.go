// Package discovery tells the pool which endpoints there are, from a file that it watches.
//
// It owns the file's format, the watch, and what names in it resolved to last. It never asks a model server anything,
// and keeps telling the last good set while the file is bad or a name does not resolve.
package discovery
