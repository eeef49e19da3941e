package envoy

import (
	"bytes"
	"strings"
	"sync"
)

const (
	keptLines = 20
	lineBytes = 1000 // longest line that is kept; the rest is cut off
)

// lines splits the output of a process into lines, hands each on, and keeps the last ones.
type lines struct {
	each func(string) // nil = nothing is handed on

	mu   sync.Mutex
	rest []byte // beginning of a line that has no end yet
	last []string
}

// Write takes a piece of output. It never fails.
func (l *lines) Write(piece []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for rest := piece; len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		l.rest = append(l.rest, line[:min(len(line), lineBytes-min(len(l.rest), lineBytes))]...)
		if whole {
			l.end()
		}
		rest = after
	}
	return len(piece), nil
}

func (l *lines) end() {
	text := strings.TrimRight(strings.ToValidUTF8(string(l.rest), "?"), " \r")
	l.rest = l.rest[:0]
	if text == "" {
		return
	}
	if len(l.last) == keptLines {
		l.last = append(l.last[:0], l.last[1:]...)
	}
	l.last = append(l.last, text)
	if l.each != nil {
		l.each(text)
	}
}

// flush ends a line that the process left without an end.
func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
}

// tail returns the last lines.
func (l *lines) tail() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.last...)
}
