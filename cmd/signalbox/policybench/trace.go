package policybench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// Bounds of a trace.
const (
	maxRequests   = 200_000
	maxSessions   = 20_000
	maxLineBytes  = 4 << 20
	maxTokens     = 1 << 21
	maxTraceHours = 24 * 31
)

// Trace is what clients did: sessions whose requests follow each other, or requests at times.
type Trace struct {
	Name     string
	Sessions []Session // played in a closed loop; nil = Requests
	Requests []Request // played in an open loop, in the order of their times

	began time.Time // that Requests count from, where the trace has times of day
}

// Session is a client that sends the next request after the answer to the one before and a time to think.
type Session struct {
	Tools, System int // tokens of the parts in front, which sessions with equal numbers share
	Turns         []Turn
}

// Turn is a request of a session.
type Turn struct {
	Prompt, Output int           // tokens; an answer may have none
	Blocks         int           // whole blocks of the prompt
	Back           int           // the turn that shares blocks with this one is so many before; -1 = none
	Shared         int           // first blocks that both have
	Think          time.Duration // between the answer to the turn before and this one
}

// Request is a request of an open loop.
type Request struct {
	At             time.Duration
	Prompt, Output int      // tokens
	Blocks         []uint64 // names of the blocks of BlockTokens tokens, the last of which need not be whole
	BlockTokens    int
}

// ReadTrace reads a trace of any of the formats, which the first bytes tell: Mooncake's and the agentic one have a JSON
// object a line, Azure's is CSV. Errors name the line.
func ReadTrace(name string, r io.Reader) (*Trace, error) {
	lines := bufio.NewReaderSize(r, 64<<10)
	first, err := lines.Peek(1)
	if err != nil {
		return nil, fmt.Errorf("%s: empty", name)
	}
	t := &Trace{Name: name}
	read := t.azure
	if first[0] == '{' {
		read = t.object
	}
	scan := bufio.NewScanner(lines)
	scan.Buffer(make([]byte, 0, 64<<10), maxLineBytes)
	n := 0
	for scan.Scan() {
		n++
		line := bytes.TrimSpace(scan.Bytes())
		if len(line) == 0 {
			continue
		}
		if err := errors.Join(read(line), t.bounded()); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", name, n, err)
		}
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("%s: line %d: %w", name, n+1, err)
	}
	if len(t.Sessions)+len(t.Requests) == 0 {
		return nil, fmt.Errorf("%s: no request", name)
	}
	return t, nil
}

func (t *Trace) bounded() error {
	switch {
	case len(t.Sessions) > maxSessions:
		return fmt.Errorf("more than %d sessions", maxSessions)
	case len(t.Requests) > maxRequests:
		return fmt.Errorf("more than %d requests", maxRequests)
	case len(t.Sessions) > 0 && len(t.Requests) > 0:
		return errors.New("sessions and requests in one trace")
	}
	return nil
}

// object reads a line of Mooncake's format or of the agentic one.
func (t *Trace) object(line []byte) error {
	var o struct {
		Timestamp *float64    `json:"timestamp"`
		Input     int         `json:"input_length"`
		Output    int         `json:"output_length"`
		Hashes    []uint64    `json:"hash_ids"`
		Tools     int         `json:"tools"`
		System    int         `json:"system"`
		Turns     [][]float64 `json:"r"`
	}
	if err := json.Unmarshal(line, &o); err != nil {
		return err
	}
	switch {
	case o.Timestamp != nil:
		return t.add(*o.Timestamp/1000, Request{Prompt: o.Input, Output: o.Output, Blocks: o.Hashes, BlockTokens: 512})
	case o.Turns != nil:
		return t.session(o.Tools, o.System, o.Turns)
	}
	return errors.New("neither timestamp nor r: want a request of Mooncake's format, or a session")
}

// add adds a request of an open loop, at a time in seconds.
func (t *Trace) add(at float64, r Request) error {
	if err := errors.Join(
		seconds("timestamp", at),
		tokens("input", r.Prompt),
		tokens("output", r.Output+1),
	); err != nil {
		return err
	}
	r.At = time.Duration(at * float64(time.Second))
	if n := len(t.Requests); n > 0 && r.At < t.Requests[n-1].At {
		return fmt.Errorf("timestamp: %v s, before that of the line before", at)
	}
	if most := (r.Prompt + r.BlockTokens - 1) / max(r.BlockTokens, 1); len(r.Blocks) > most {
		return fmt.Errorf("%d blocks, of a prompt that has %d at most", len(r.Blocks), most)
	}
	t.Requests = append(t.Requests, r)
	return nil
}

func seconds(what string, s float64) error {
	if !(s >= 0 && s <= maxTraceHours*3600) {
		return fmt.Errorf("%s: got %v s, want 0 to %d hours", what, s, maxTraceHours)
	}
	return nil
}

func tokens(what string, n int) error {
	if n < 1 || n > maxTokens {
		return fmt.Errorf("%s: got %d tokens, want 1 to %d", what, n, maxTokens)
	}
	return nil
}

// turnFields is how many numbers a turn of the agentic format has, of which the last two are not read: how long another
// server took to answer, and how deep an agent stands below another.
const turnFields = 9

func (t *Trace) session(tools, system int, turns [][]float64) error {
	s := Session{Tools: tools, System: system}
	if tools < 0 || system < 0 || tools > maxTokens || system > maxTokens {
		return fmt.Errorf("tools and system: got %d and %d tokens, want 0 to %d", tools, system, maxTokens)
	}
	for i, f := range turns {
		if len(f) != turnFields {
			return fmt.Errorf("r[%d]: got %d numbers, want %d", i, len(f), turnFields)
		}
		turn := Turn{
			Prompt: whole(f[1]),
			Output: whole(f[2]),
			Blocks: whole(f[3]),
			Back:   whole(f[4]),
			Shared: whole(f[5]),
		}
		err := errors.Join(
			seconds("time", f[0]),
			seconds("think time", f[6]),
			tokens("input", turn.Prompt),
			tokens("output", turn.Output+1),
		)
		switch {
		case err != nil:
		case turn.Blocks < 0 || turn.Blocks > turn.Prompt/blockTokens+1:
			err = fmt.Errorf("got %d blocks, of a prompt of %d tokens", turn.Blocks, turn.Prompt)
		case turn.Back > i || turn.Back < -1 || turn.Back == 0:
			err = fmt.Errorf("shares blocks with the turn %d before", turn.Back)
		case turn.Shared < 0 || turn.Shared > turn.Blocks || turn.Back > 0 && turn.Shared > s.Turns[i-turn.Back].Blocks:
			err = fmt.Errorf("shares %d blocks, which one of the two has not", turn.Shared)
		}
		if err != nil {
			return fmt.Errorf("r[%d]: %w", i, err)
		}
		turn.Think = time.Duration(f[6] * float64(time.Second))
		s.Turns = append(s.Turns, turn)
	}
	if len(s.Turns) == 0 {
		return errors.New("r: no turn")
	}
	t.Sessions = append(t.Sessions, s)
	return nil
}

// whole returns a number without its fraction; -2, which is never right, for one that is none or too large.
func whole(f float64) int {
	if math.IsNaN(f) || math.Abs(f) > maxTokens {
		return -2
	}
	return int(f)
}

// azureHead begins the first line of Azure's traces, whose columns are the time, and the tokens of prompt and answer.
const azureHead = "TIMESTAMP,"

// azure reads a line of Azure's traces. They do not tell which prompts have a beginning in common.
func (t *Trace) azure(line []byte) error {
	if strings.HasPrefix(string(line), azureHead) && len(t.Requests) == 0 {
		return nil
	}
	f := strings.Split(string(line), ",")
	if len(f) != 3 {
		return fmt.Errorf("got %d columns, want TIMESTAMP,ContextTokens,GeneratedTokens", len(f))
	}
	at, err := azureTime(f[0])
	if err != nil {
		return err
	}
	prompt, err1 := strconv.Atoi(strings.TrimSpace(f[1]))
	output, err2 := strconv.Atoi(strings.TrimSpace(f[2]))
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if len(t.Requests) == 0 {
		t.began = at
	}
	return t.add(at.Sub(t.began).Seconds(), Request{Prompt: prompt, Output: max(output, 1)})
}

// azureTime reads a time, with a zone or without.
func azureTime(s string) (at time.Time, err error) {
	for _, layout := range []string{"2006-01-02 15:04:05.999999999", "2006-01-02 15:04:05.999999999-07:00"} {
		if at, err = time.Parse(layout, strings.TrimSpace(s)); err == nil {
			return at, nil
		}
	}
	return at, fmt.Errorf("time: %w", err)
}
