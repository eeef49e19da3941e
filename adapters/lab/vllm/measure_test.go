package vllm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// workload is what a server is measured under: so many streams, each with one request after the other.
type workload struct{ streams, requests, promptTokens, answerTokens int }

// speed is what a client sees of a server under a workload.
type speed struct {
	firstToken      time.Duration // median over the requests
	tokensPerSecond float64       // of all streams together
}

// measure runs a workload against the server at base. Prompts are token numbers that no two requests share.
func measure(t *testing.T, base, model string, w workload) speed {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: w.streams}}
	defer client.CloseIdleConnections()
	turns := make(chan int)
	firsts := make([]time.Duration, w.requests)
	seed, began := rand.Uint64(), time.Now()
	var workers sync.WaitGroup
	for range w.streams {
		workers.Go(func() {
			for i := range turns {
				var err error
				if firsts[i], err = w.one(client, base, model, rand.New(rand.NewPCG(seed, uint64(i)))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range w.requests {
		turns <- i
	}
	close(turns)
	workers.Wait()
	took := time.Since(began)
	slices.Sort(firsts)
	return speed{firsts[len(firsts)/2], float64(w.requests*w.answerTokens) / took.Seconds()}
}

// one streams one answer and returns when its first token came, counted from before the request.
func (w workload) one(client *http.Client, base, model string, dice *rand.Rand) (first time.Duration, err error) {
	prompt := make([]int, w.promptTokens)
	for i := range prompt {
		prompt[i] = 10 + dice.IntN(400)
	}
	body, err := json.Marshal(map[string]any{
		"model": model, "prompt": prompt, "max_tokens": w.answerTokens, "ignore_eos": true, "temperature": 0,
		"stream":         true,
		"stream_options": map[string]bool{"include_usage": true},
	})
	if err != nil {
		return 0, err
	}
	began := time.Now()
	resp, err := client.Post(base+"/v1/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	lines, last := bufio.NewScanner(resp.Body), ""
	for lines.Scan() {
		data, isEvent := strings.CutPrefix(lines.Text(), "data: ")
		if !isEvent {
			continue
		}
		if first == 0 {
			first = time.Since(began)
		}
		if strings.Contains(data, `"usage":{`) {
			last = data
		}
	}
	if want := fmt.Sprintf(`"completion_tokens":%d`, w.answerTokens); !strings.Contains(last, want) {
		return 0, fmt.Errorf("status %d: the last usage is %q, want %s", resp.StatusCode, last, want)
	}
	return first, lines.Err()
}
