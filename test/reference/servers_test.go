package reference

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/lab/vllm/batch"
	"github.com/signalbox-epp/signalbox/adapters/lab/vllm/page"
)

// sides are the two pickers that are compared.
const (
	ours = iota
	theirs
	sides
)

// sideNames are how a test calls them.
var sideNames = [sides]string{"signalbox", "reference"}

// hardware is what each modelled server has: 96 000 tokens of cache, which traces fill.
var hardware = batch.Config{
	MaxRunning: 64, MaxBatchedTokens: 2048, KVBlocks: 6000, BlockTokens: 16, PrefillTokensPerSecond: 8000,
	DecodeTokensPerSecond: 50, BatchSlowdown: 0.01, AnswerTokens: 100,
}

// modelled is a model server that computes in the time of the test. Each picker has an address of its own for its page,
// so that the test knows which one has read it.
type modelled struct {
	core      *batch.Core
	layout    *page.Page
	at        [sides]string
	read      [sides]atomic.Int64 // pages that were given out
	published [sides]int64        // read when the page changed
	shown     batch.Stats

	mu   sync.Mutex
	text []byte
}

func newModelled(t *testing.T, tokens *batch.Tokens, began time.Time) *modelled {
	t.Helper()
	core, err := batch.New(hardware, tokens)
	if err != nil {
		t.Fatal(err)
	}
	m := &modelled{core: core, layout: page.New(page.Layout{
		Model: "m", KVBlocks: hardware.KVBlocks, BlockTokens: hardware.BlockTokens, Started: began,
	}, core.Tally())}
	m.render()
	for side := range sides {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			m.mu.Lock()
			text := m.text
			m.mu.Unlock()
			m.read[side].Add(1)
			_, _ = w.Write(text) // who hangs up reads no page
		}))
		t.Cleanup(server.Close)
		m.at[side] = strings.TrimPrefix(server.URL, "http://")
	}
	return m
}

func (m *modelled) render() {
	m.shown = m.core.Stats()
	text := m.layout.Render(nil, page.View{Tally: m.core.Tally(), Stats: m.shown})
	m.mu.Lock()
	m.text = text
	m.mu.Unlock()
}

// publish shows on the page what the server does now.
func (m *modelled) publish() {
	if m.core.Stats() == m.shown {
		return
	}
	m.render()
	m.renew()
}

// renew has the page count as unknown to both pickers.
func (m *modelled) renew() {
	for side := range sides {
		m.published[side] = m.read[side].Load()
	}
}

// known reports whether both pickers know the page: each asks for one after the other, so that the page before the
// newest that it was given is one that it has read.
func (m *modelled) known() bool {
	for side := range sides {
		if m.read[side].Load() < m.published[side]+2 {
			return false
		}
	}
	return true
}
