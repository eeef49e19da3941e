package parsers

import (
	"bytes"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

func hexDigit(c byte) rune {
	switch {
	case c >= '0' && c <= '9':
		return rune(c - '0')
	case c >= 'a' && c <= 'f':
		return rune(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return rune(c-'A') + 10
	}
	return -1
}

func hex4(p []byte) rune {
	return hexDigit(p[0])<<12 | hexDigit(p[1])<<8 | hexDigit(p[2])<<4 | hexDigit(p[3])
}

// unescape decodes the escape that raw begins with, and says how long it is. A surrogate without its other half is
// U+FFFD. raw has passed scanner.str.
func unescape(raw []byte) (r rune, size int) {
	switch c := raw[1]; c {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r = hex4(raw[2:])
	default:
		return rune(c), 2
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if len(raw) >= 12 && raw[6] == '\\' && raw[7] == 'u' {
		if both := utf16.DecodeRune(r, hex4(raw[8:])); both != utf8.RuneError {
			return both, 12
		}
	}
	return utf8.RuneError, 6
}

// appendDecoded appends the text that raw stands for, never longer than raw. Bytes that are not UTF-8 stay.
func appendDecoded(dst, raw []byte) []byte {
	for len(raw) > 0 {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return append(dst, raw...)
		}
		dst = append(dst, raw[:i]...)
		r, n := unescape(raw[i:])
		dst = utf8.AppendRune(dst, r)
		raw = raw[i+n:]
	}
	return dst
}

// copyText returns the text of raw as a string of its own. A byte that is not UTF-8 becomes U+FFFD, as in
// encoding/json.
func copyText(raw []byte, escaped bool) string {
	if escaped {
		raw = appendDecoded(make([]byte, 0, len(raw)), raw)
	}
	if utf8.Valid(raw) {
		return string(raw)
	}
	return string([]rune(string(raw)))
}

// count reads a number of tokens: 0 if it is negative, not whole, or none; at most 2^31-1.
func count(number []byte) int {
	n := 0
	for _, c := range number {
		if c < '0' || c > '9' {
			return wholeCount(number)
		}
		n = min(n*10+int(c-'0'), math.MaxInt32)
	}
	return n
}

// wholeCount is for numbers like 16.0 and 1e3, which servers take for whole.
func wholeCount(number []byte) int {
	f, _ := strconv.ParseFloat(string(number), 64) // out of range gives an infinity, which is cut below
	if f < 0 || f != math.Trunc(f) {
		return 0
	}
	return int(min(f, math.MaxInt32))
}
