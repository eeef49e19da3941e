// Package files follows files while they are in use, and keeps the value that their last good contents were parsed to.
// Every adapter that reads files which may change uses it.
//
// It decides when files are read, and which of their contents count. It never takes contents that it has seen only
// once, because the file may be half written, and never replaces a good value by a bad one. It does not know what a
// file is about.
package files
