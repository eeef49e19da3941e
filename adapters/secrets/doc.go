// Package secrets holds certificates, keys and tokens that stand in files, and follows the files while they are in use.
//
// It owns the last good contents. It never takes contents that it has seen only once, nor PEM that is cut off, so that
// a file can be written in place within the second between two looks. It never replaces a good set by a bad one, and
// never puts a key or a token into an error or the log.
package secrets
