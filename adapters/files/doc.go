// Package files follows files while they are in use, for every adapter whose facts stand in files, and keeps the
// value of the last contents that were good.
//
// It owns when files are read, and which of their contents count. It never takes contents that it has seen only once,
// for they may be half of what is being written, and never gives up a good value for a bad one. It does not know what
// stands in a file.
package files
