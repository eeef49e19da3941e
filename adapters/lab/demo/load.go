package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// The demo's load: users in groups, each group with a long system prompt of its own, each user with a few turns.
const (
	groups                 = 16
	conversationsPerSecond = 6.0  // that begin each second, in the mean
	adapterShare           = 0.08 // of conversations
	openRequests           = 192  // at once, further ones wait at the client
	tokenBytes             = 4    // of the simulated servers
)

// conversation is what one user says, and when.
type conversation struct {
	Start  time.Duration // since the load began
	Model  string
	System string
	Turns  []turn
}

type turn struct {
	Think        time.Duration // from the end of the answer before
	Text         string
	AnswerTokens int
}

// newLoad is the same for the same seed and length. It is in order of time.
func newLoad(seed uint64, length time.Duration) []conversation {
	r := rand.New(rand.NewPCG(seed, 0x64656d6f))
	systems := make([]string, groups)
	for i := range systems {
		systems[i] = madeUp(r, 1000+r.IntN(800))
	}
	var all []conversation
	for at := time.Duration(0); ; {
		at += time.Duration(r.ExpFloat64() / conversationsPerSecond * float64(time.Second))
		if at >= length && len(all) > 0 {
			return all
		}
		group := r.IntN(groups)
		c := conversation{Start: at, Model: baseModel, System: systems[group]}
		if r.Float64() < adapterShare {
			// Each adapter is one group's, and has a cache entry of its own for what that group shares.
			group = r.IntN(len(loras))
			c.Model, c.System = loras[group], systems[group]
		}
		for range 1 + r.IntN(4) {
			c.Turns = append(c.Turns, turn{
				Think: time.Duration(300+r.IntN(900)) * time.Millisecond, Text: madeUp(r, 20+r.IntN(60)),
				AnswerTokens: 8 + r.IntN(32),
			})
		}
		c.Turns[0].Think = 0
		all = append(all, c)
	}
}

// madeUp is made-up text of so many tokens of the simulated servers.
func madeUp(r *rand.Rand, tokens int) string {
	const consonants, vowels = "bcdfghjklmnprstvwz", "aeiou"
	var b strings.Builder
	for b.Len() < tokens*tokenBytes {
		for range 1 + r.IntN(3) {
			b.WriteByte(consonants[r.IntN(len(consonants))])
			b.WriteByte(vowels[r.IntN(len(vowels))])
		}
		b.WriteByte(' ')
	}
	return b.String()[:tokens*tokenBytes]
}

func countTurns(load []conversation) int {
	n := 0
	for _, c := range load {
		n += len(c.Turns)
	}
	return n
}

// player sends a load, and keeps what became of it.
type player struct {
	url    string
	lora   string // address of the server that has the adapters
	client *http.Client
	places chan struct{}

	mu      sync.Mutex
	tally   tally
	problem error           // the first
	ttft    []time.Duration // of answered requests; for cut ones without a first token, how long they waited in vain
}

func newPlayer(url, lora string) *player {
	return &player{
		url: url, lora: lora, places: make(chan struct{}, openRequests),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: openRequests, DisableCompression: true}},
	}
}

// play returns when every conversation has ended, or ctx has.
func (p *player) play(ctx context.Context, load []conversation) {
	var users sync.WaitGroup
	began := time.Now()
	for _, c := range load {
		if !sleep(ctx, c.Start-time.Since(began)) {
			break
		}
		users.Go(func() { p.converse(ctx, c) })
	}
	users.Wait()
	p.client.CloseIdleConnections()
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

type chatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// converse says one turn after the other. What follows a failed turn is not said.
func (p *player) converse(ctx context.Context, c conversation) {
	said := []chatMessage{{"system", c.System}}
	for _, t := range c.Turns {
		if !sleep(ctx, t.Think) {
			return
		}
		select {
		case p.places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		said = append(said, chatMessage{"user", t.Text})
		answer, ok := p.ask(ctx, c.Model, said, t.AnswerTokens)
		<-p.places
		if !ok {
			return
		}
		said = append(said, chatMessage{"assistant", answer})
	}
}

// ask sends one request and counts it.
func (p *player) ask(ctx context.Context, model string, said []chatMessage, tokens int) (string, bool) {
	p.mu.Lock()
	p.tally.Sent++
	p.mu.Unlock()
	began := time.Now()
	answer, first, err := p.exchange(ctx, model, said, tokens)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		p.tally.Done++
		p.ttft = append(p.ttft, first.Sub(began))
	case ctx.Err() != nil:
		p.tally.Cut++
		if first.IsZero() {
			first = time.Now()
		}
		p.ttft = append(p.ttft, first.Sub(began))
	default:
		p.tally.Failed++
		if p.problem == nil {
			p.problem = err
		}
	}
	return answer, err == nil
}

func (p *player) exchange(ctx context.Context, model string, said []chatMessage, tokens int) (string, time.Time,
	error) {
	body, err := json.Marshal(map[string]any{
		"model": model, "messages": said, "stream": true, "max_tokens": tokens, "ignore_eos": true,
	})
	if err != nil {
		return "", time.Time{}, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return "", time.Time{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	if model != baseModel {
		r.Header.Set(ServersHeader, p.lora)
	}
	answer, err := p.client.Do(r)
	if err != nil {
		return "", time.Time{}, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 300))
		return "", time.Time{}, fmt.Errorf("status %d: %s", answer.StatusCode, text)
	}
	return readAnswer(answer.Body)
}

// readAnswer reads server-sent events up to [DONE], and says when the first one with text came.
func readAnswer(body io.Reader) (text string, first time.Time, err error) {
	var b strings.Builder
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ok {
			continue
		}
		if string(data) == "[DONE]" {
			// The rest is read too, or the connection could not be used again.
			_, err := io.Copy(io.Discard, body)
			return b.String(), first, err
		}
		var event struct {
			Choices []struct {
				Delta struct {
					Content string `json:"content"`
				} `json:"delta"`
			} `json:"choices"`
		}
		if err := json.Unmarshal(data, &event); err != nil {
			return "", first, fmt.Errorf("event %.100q: %w", data, err)
		}
		for _, c := range event.Choices {
			if first.IsZero() && c.Delta.Content != "" {
				first = time.Now()
			}
			b.WriteString(c.Delta.Content)
		}
	}
	if err := lines.Err(); err != nil {
		return "", first, err
	}
	return "", first, io.ErrUnexpectedEOF
}
