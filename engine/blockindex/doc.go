// Package blockindex is the prefix index: it hashes prompts into blocks, and finds for a block the endpoints that hold
// it.
//
// One goroutine at a time, that of the prefix actor, writes the index. Any number read it at the same time without a
// lock, and see each block as it is either before or after a write. The package never reads a clock, keeps no prompt
// text, and never decides where a request goes.
package blockindex
