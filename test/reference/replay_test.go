package reference

import (
	"encoding/json"
	"hash/fnv"
	"os"
	"strings"
	"testing"
	"time"
)

// asked is a request of a trace.
type asked struct {
	body   string // of the HTTP request
	path   string
	prompt string // its text
	output int    // tokens
	ended  func(now time.Time)
}

// replay gives the requests of a trace, one after the other.
type replay struct {
	due []due
}

// due is a request that is sent at a time.
type due struct {
	at  time.Time
	ask func() asked
}

// next takes out the request that is due first; false = all that are left wait for answers.
func (r *replay) next(before time.Time, bounded bool) (d due, ok bool) {
	first := -1
	for i := range r.due {
		if first < 0 || r.due[i].at.Before(r.due[first].at) {
			first = i
		}
	}
	if first < 0 || bounded && r.due[first].at.After(before) {
		return due{}, false
	}
	d = r.due[first]
	r.due = append(r.due[:first], r.due[first+1:]...)
	return d, true
}

// Of a trace, this is how it is played. Contexts of agents are of an eighth of their length.
const (
	offered       = 0.6 // of what servers compute, by an open loop, if they had nothing cached
	clients       = 64  // of a closed loop
	requestTokens = 512 // of a block of a request
	agentTokens   = 8   // of a block of a session, which has 64
	longestThink  = 20  // seconds
	bytesPerToken = 4
)

// entry is a line of a trace: a request at a time, or a session.
type entry struct {
	At            float64     `json:"timestamp"` // in milliseconds
	Prompt        int         `json:"input_length"`
	Output        int         `json:"output_length"`
	Blocks        []uint64    `json:"hash_ids"` // names of the blocks of the prompt
	Tools, System int         // tokens of the parts in front, which sessions with equal numbers share
	Turns         [][]float64 `json:"r"`
}

// Numbers of a turn of a session.
const (
	turnOutput = iota + 2 // tokens
	turnBlocks            // of the prompt
	turnBack              // the turn that shares blocks with this one is so many before; -1 = none
	turnShared            // first blocks that both have
	turnThink             // seconds between the answer to the turn before and this one
)

func newReplay(t *testing.T, path string, pods, requests int, began time.Time) *replay {
	t.Helper()
	file, err := os.Open(path)
	must(t, err)
	defer func() { _ = file.Close() }()
	var trace []entry
	for lines := json.NewDecoder(file); lines.More(); {
		var e entry
		must(t, lines.Decode(&e))
		trace = append(trace, e)
	}
	r := &replay{}
	if len(trace) > 0 && trace[0].Turns == nil {
		r.open(trace[:min(requests, len(trace))], pods, began)
		return r
	}
	for i := range min(clients, len(trace)) {
		c := &client{replay: r, sessions: trace, session: i, past: map[int][]uint64{}}
		c.ready(began.Add(time.Duration(i) * 100 * time.Millisecond))
	}
	return r
}

// open has all requests be due at their times, so much faster that servers have enough to do.
func (r *replay) open(requests []entry, pods int, began time.Time) {
	tokens := 0
	for _, q := range requests {
		tokens += q.Prompt
	}
	lasts := float64(tokens) / (offered * float64(pods) * hardware.PrefillTokensPerSecond) // seconds
	speed := requests[len(requests)-1].At / 1000 / lasts
	for _, q := range requests {
		r.due = append(r.due, due{began.Add(time.Duration(q.At / speed * float64(time.Millisecond))), func() asked {
			text := text(q.Blocks, requestTokens)
			text = text[:min(len(text), q.Prompt*bytesPerToken)]
			body, _ := json.Marshal(
				map[string]any{"model": "m", "prompt": text, "stream": true, "max_tokens": max(q.Output, 1)},
			) // it is a string
			return asked{
				body:   string(body),
				path:   completions,
				prompt: text,
				output: max(q.Output, 1),
				ended:  func(time.Time) {},
			}
		}})
	}
}

// client plays sessions of a closed loop, one after the other.
type client struct {
	*replay
	sessions      []entry
	session, turn int
	past          map[int][]uint64 // blocks of turns
}

func (c *client) ready(at time.Time) { c.due = append(c.due, due{at, c.ask}) }

func (c *client) ask() asked {
	s := &c.sessions[c.session%len(c.sessions)]
	turn := s.Turns[c.turn]
	front, shared := (s.Tools+s.System)/64, 0
	var blocks []uint64
	if back := int(turn[turnBack]); back > 0 {
		shared = int(turn[turnShared])
		blocks = append(blocks, c.past[c.turn-back][:shared]...)
	}
	for i := shared; i < int(turn[turnBlocks]); i++ {
		name := uint64(c.session+1)<<40 | uint64(c.turn+1)<<24 | uint64(i)
		if i < front {
			name = uint64(s.Tools)<<44 | uint64(s.System)<<24 | uint64(i)
		}
		blocks = append(blocks, name)
	}
	c.past[c.turn] = blocks
	front = min(front, len(blocks))
	system, user := text(blocks[:front], agentTokens), text(blocks[front:], agentTokens)
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	body, _ := json.Marshal(map[string]any{ // strings can be encoded
		"model":      "m",
		"stream":     true,
		"max_tokens": max(int(turn[turnOutput])/8, 1),
		"messages":   []message{{"system", system}, {"user", user}},
	})
	return asked{
		body: string(
			body,
		),
		path:   "/v1/chat/completions",
		prompt: system + user,
		output: max(int(turn[turnOutput])/8, 1),
		ended: func(now time.Time) {
			if c.turn++; c.turn == len(s.Turns) {
				c.session, c.turn, c.past = c.session+clients, 0, map[int][]uint64{}
			}
			think := c.sessions[c.session%len(c.sessions)].Turns[c.turn][turnThink]
			c.ready(now.Add(time.Duration(min(think/8, longestThink) * float64(time.Second))))
		},
	}
}

// text returns what blocks of so many tokens stand for.
func text(blocks []uint64, blockTokens int) string {
	var b strings.Builder
	for _, name := range blocks {
		h := fnv.New64a()
		for i := range 8 {
			_, _ = h.Write([]byte{byte(name >> (8 * i))}) // it never fails
		}
		for x, n := h.Sum64(), 0; n < blockTokens*bytesPerToken; n++ {
			x = x*6364136223846793005 + 1442695040888963407
			_ = b.WriteByte('a' + byte(x>>59)%26) // it never fails
		}
	}
	return b.String()
}
