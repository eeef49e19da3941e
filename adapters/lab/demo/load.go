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

const reasonHeader = "x-llm-d-request-dropped-reason" // why Signalbox refused

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

// asker sends requests to one proxy.
type asker struct {
	url    string
	client *http.Client
}

// newAsker keeps so many connections open at most while nobody uses them.
func newAsker(url string, connections int) asker {
	transport := &http.Transport{MaxIdleConnsPerHost: connections, DisableCompression: true}
	return asker{url, &http.Client{Transport: transport}}
}

// question is a chat request with a streamed answer.
type question struct {
	model  string
	said   []chatMessage
	tokens int         // of the answer
	header http.Header // more of them
}

// reply is the answer to a question.
type reply struct {
	text   string
	first  time.Time // when its first text came; zero = none did
	tokens int       // as the server counts them, without the prompt; 0 = it did not say
}

// refusal is an answer with another status than 200.
type refusal struct {
	status int
	reason string // of Signalbox; "" = it was somebody else who refused
	text   string
}

func (r *refusal) Error() string { return fmt.Sprintf("status %d %s: %s", r.status, r.reason, r.text) }

// player sends a load, and keeps what became of it.
type player struct {
	asker
	lora   string // address of the server that has the adapters
	places chan struct{}

	mu      sync.Mutex
	tally   tally
	problem error           // the first
	ttft    []time.Duration // of answered requests; for cut ones without a first token, how long they waited in vain
}

func newPlayer(url, lora string) *player {
	return &player{asker: newAsker(url, openRequests), lora: lora, places: make(chan struct{}, openRequests)}
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
	q := question{model: model, said: said, tokens: tokens}
	if model != baseModel {
		q.header = http.Header{http.CanonicalHeaderKey(ServersHeader): {p.lora}}
	}
	answer, err := p.exchange(ctx, q)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		p.tally.Done++
		p.ttft = append(p.ttft, answer.first.Sub(began))
	case ctx.Err() != nil:
		p.tally.Cut++
		p.ttft = append(p.ttft, answer.waited(began))
	default:
		p.tally.Failed++
		if p.problem == nil {
			p.problem = err
		}
	}
	return answer.text, err == nil
}

// waited is the time to the first token, or until now if there was none.
func (r *reply) waited(began time.Time) time.Duration {
	if r.first.IsZero() {
		return time.Since(began)
	}
	return r.first.Sub(began)
}

// exchange fails with a *refusal if the answer is one.
func (a *asker) exchange(ctx context.Context, q question) (reply, error) {
	body, err := json.Marshal(map[string]any{
		"model": q.model, "messages": q.said, "max_tokens": q.tokens, "ignore_eos": true,
		"stream": true, "stream_options": map[string]bool{"include_usage": true},
	})
	if err != nil {
		return reply{}, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	if q.header != nil {
		r.Header = q.header.Clone()
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := a.client.Do(r)
	if err != nil {
		return reply{}, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 300))
		return reply{}, &refusal{answer.StatusCode, answer.Header.Get(reasonHeader), string(text)}
	}
	return readAnswer(answer.Body)
}

// readAnswer reads server-sent events up to [DONE].
func readAnswer(body io.Reader) (got reply, err error) {
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
			got.text = b.String()
			return got, err
		}
		var event struct {
			Choices []struct {
				Delta struct {
					Content string `json:"content"`
				} `json:"delta"`
			} `json:"choices"`
			Usage struct {
				CompletionTokens int `json:"completion_tokens"`
			} `json:"usage"`
		}
		if err := json.Unmarshal(data, &event); err != nil {
			return got, fmt.Errorf("event %.100q: %w", data, err)
		}
		got.tokens = max(got.tokens, event.Usage.CompletionTokens)
		for _, c := range event.Choices {
			if got.first.IsZero() && c.Delta.Content != "" {
				got.first = time.Now()
			}
			b.WriteString(c.Delta.Content)
		}
	}
	if err := lines.Err(); err != nil {
		return got, err
	}
	return got, io.ErrUnexpectedEOF
}
