// Package blockindex knows which endpoint has seen which beginnings of prompts. It owns the hashing of prompts into
// blocks and the index from a block to the endpoints that hold it.
//
// One goroutine at a time writes the index (the prefix actor); any number read it at the same time without a lock, and
// see each block either before or after a write. It never reads a clock, never sees prompt text once it is hashed, and
// never decides where a request goes.
package blockindex
