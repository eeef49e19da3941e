// Package secrets holds certificates, keys and tokens that stand in files, and follows the files while they are in use.
//
// It owns what was read last and was good. It never takes what it has seen once only, nor PEM that is cut: whoever
// writes a file in place has the time between two looks, a second, for it. It never gives up a good set for a bad
// one, and never tells anybody a key or a token.
package secrets
