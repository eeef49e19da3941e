// Package clip shortens texts of clients, servers and files to what is kept or repeated of them. Widths on a terminal
// are another matter, and adapters/admin's.
package clip

import (
	"strings"
	"unicode/utf8"
)

// valueBytes is what a message repeats of a text at most.
const valueBytes = 80

// Bytes returns the beginning of a text: at most so many bytes of whole characters.
func Bytes(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}

// Value returns what a message repeats of a text: all of it, or its beginning and three dots.
func Value(s string) string {
	if len(s) <= valueBytes {
		return s
	}
	return strings.ToValidUTF8(Bytes(s, valueBytes-3), "") + "..."
}
