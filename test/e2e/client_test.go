package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// client sends requests as an application would, each under a name of its own.
type client struct {
	base string
	http *http.Client
	last atomic.Int64
}

// answer is what came back. Failed requests have an err, or a status other than 200, or no proper end.
type answer struct {
	name   string // of the request, in Envoy's access log
	status int
	header http.Header
	body   string
	// of what was sent by hand
	trailer http.Header
	err     error
	events  []event // of a streamed answer
	sent    time.Time
	began   time.Time // the response's headers were there
	ended   time.Time
}

// event is one `data:` line of a streamed answer.
type event struct {
	data string
	at   time.Time
}

func newClient(base string) *client {
	return &client{base: base, http: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 128},
		Timeout:   time.Minute,
	}}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// do sends any request; each answer carries the name under which it is logged.
func (c *client) do(ctx context.Context, method, path, body string, header http.Header) (a answer) {
	a = answer{name: fmt.Sprintf("r%d", c.last.Add(1)), sent: time.Now()}
	defer func() { a.ended = time.Now() }()
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, strings.NewReader(body))
	if err != nil {
		a.err = err
		return a
	}
	for key, values := range header {
		request.Header[key] = values
	}
	if method == http.MethodPost && request.Header.Get("Content-Type") == "" {
		request.Header.Set("Content-Type", "application/json")
	}
	request.Header.Set(logField, a.name)
	response, err := c.http.Do(request)
	if err != nil {
		a.err = err
		return a
	}
	defer response.Body.Close()
	a.status, a.header, a.began = response.StatusCode, response.Header, time.Now()
	if strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		a.err = a.readEvents(response.Body)
		return a
	}
	read, err := io.ReadAll(response.Body)
	a.body, a.err = string(read), err
	return a
}

func (a *answer) readEvents(from io.Reader) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			a.events = append(a.events, event{data: data, at: time.Now()})
		}
	}
	return lines.Err()
}

func (c *client) post(path, body string) answer {
	return c.do(context.Background(), http.MethodPost, path, body, nil)
}

func (c *client) chat(model, prompt string, maxTokens int) answer {
	return c.post("/v1/chat/completions", chatBody(model, prompt, maxTokens, false))
}

func (c *client) stream(ctx context.Context, prompt string, maxTokens int) answer {
	return c.do(ctx, http.MethodPost, "/v1/chat/completions", chatBody(model, prompt, maxTokens, true), nil)
}

// whole reports whether a streamed answer came to its proper end, or a plain one arrived complete.
func (a *answer) whole() bool {
	if a.err != nil || a.status != http.StatusOK {
		return false
	}
	return a.events == nil || a.events[len(a.events)-1].data == "[DONE]"
}

func (a *answer) String() string {
	return fmt.Sprintf("%s: status %d, %d events, err %v, reason %q, body %.300q",
		a.name, a.status, len(a.events), a.err, a.header.Get("x-llm-d-request-dropped-reason"), a.body)
}

func chatBody(model, prompt string, maxTokens int, stream bool) string {
	body := map[string]any{
		"model": model, "max_tokens": maxTokens,
		"messages": []map[string]string{{"role": "user", "content": prompt}},
	}
	if stream {
		body["stream"] = true
		body["stream_options"] = map[string]bool{"include_usage": true}
	}
	return mustJSON(body)
}

func mustJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // only values written in this package come here
	}
	return string(text)
}

// load runs clients in closed loops until stop is closed, and collects every answer.
type load struct {
	mu      sync.Mutex
	answers []answer
	stopped chan struct{}
	ended   sync.WaitGroup
}

func startLoad(clients int, send func(client, n int) answer) *load {
	l := &load{stopped: make(chan struct{})}
	for i := range clients {
		l.ended.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-l.stopped:
					return
				default:
				}
				a := send(i, n)
				l.mu.Lock()
				l.answers = append(l.answers, a)
				l.mu.Unlock()
			}
		})
	}
	return l
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.answers)
}

// stop lets the requests in flight end and returns all answers.
func (l *load) stop() []answer {
	close(l.stopped)
	l.ended.Wait()
	return l.answers
}
