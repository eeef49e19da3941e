// Package secrets holds certificates, keys and tokens that stand in files, and follows the files while they are in use.
//
// It owns what was read last and was good. It never takes half of a change, never gives up a good set for a bad one, and
// never tells anybody a key or a token.
package secrets
