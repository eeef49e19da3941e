package extproc

import (
	"strconv"
	"strings"

	"github.com/signalbox-epp/signalbox/messages"
)

// ParseID returns the request id that FormatID wrote as s. It returns false if s is the id of another process, or no
// id.
func ParseID(instance uint64, s string) (messages.RequestID, bool) {
	var room [prefixBytes]byte
	number, ours := strings.CutPrefix(s, string(appendPrefix(room[:0], instance)))
	if !ours {
		return 0, false
	}
	n, err := strconv.ParseUint(number, 10, 64)
	return messages.RequestID(n), err == nil && n > 0
}

// FormatID returns a request id in the form that answers and refusals carry.
func FormatID(instance uint64, id messages.RequestID) string {
	var room [prefixBytes + 20]byte
	return string(strconv.AppendUint(appendPrefix(room[:0], instance), uint64(id), 10))
}

const prefixBytes = 16 + 1

// appendPrefix appends what the ids of an instance begin with: 16 hexadecimal digits and a hyphen.
func appendPrefix(dst []byte, instance uint64) []byte {
	const digits = "0123456789abcdef"
	for shift := 60; shift >= 0; shift -= 4 {
		dst = append(dst, digits[instance>>shift&15])
	}
	return append(dst, '-')
}
