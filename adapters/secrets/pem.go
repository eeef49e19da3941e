package secrets

import (
	"bytes"
	"encoding/pem"
	"fmt"
)

// checkPEM returns an error if a file seems to be half written: if a block is cut off or damaged, or text follows the
// last block. Go's readers skip both, so that half of a bundle would pass as a bundle. Text before a block is its
// description. A file without any block is not judged here.
func checkPEM(text []byte) error {
	rest := text
	line := func() int { return 1 + bytes.Count(text[:len(text)-len(rest)], []byte{'\n'}) }
	for {
		at := nextBlock(rest)
		if at < 0 {
			break
		}
		rest = rest[at:]
		block, after := pem.Decode(rest)
		if block == nil || nextBlock(rest[1:len(rest)-len(after)]) >= 0 { // what was read is a later one
			return fmt.Errorf("line %d: the PEM block that begins there is cut or damaged", line())
		}
		rest = after
	}
	if len(rest) == len(text) {
		return nil
	}
	for len(rest) > 0 {
		end := bytes.IndexByte(rest, '\n') + 1
		if end == 0 {
			end = len(rest)
		}
		// without the text: it may be half of a key
		if content := bytes.TrimSpace(rest[:end]); len(content) > 0 && content[0] != '#' {
			return fmt.Errorf("line %d: want empty lines and # comments only behind the last PEM block", line())
		}
		rest = rest[end:]
	}
	return nil
}

// nextBlock returns where the next block begins, at the start of a line; -1 = there is none.
func nextBlock(text []byte) int {
	begin := []byte("\n-----BEGIN ")
	if bytes.HasPrefix(text, begin[1:]) {
		return 0
	}
	if at := bytes.Index(text, begin); at >= 0 {
		return at + 1
	}
	return -1
}
