package app

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// Of all records that are kept, those are listed that are meant, however many newer ones there are.
func TestNewestRequestsThatMeetTheFilterAreListed(t *testing.T) {
	const records, each = 3000, 100
	s := running(t, "--shards", "3")
	for id := messages.RequestID(1); id <= records; id++ {
		r := messages.Record{Request: id, Model: "m", Status: 200, ArrivedAt: time.Unix(int64(id), 0),
			Ended: time.Second}
		if id%each == 0 {
			r.Status, r.Reason, r.Model = 503, messages.NoEndpoints, fmt.Sprint("model-", id)
		}
		s.tree.picker.Refused(messages.RequestRefused{Record: r})
	}
	c := asked{url: "http://" + s.at("metrics-port")}
	for query, want := range map[string][]messages.RequestID{
		"status=503&limit=3":          {3000, 2900, 2800},
		"status=5xx&limit=2":          {3000, 2900},
		"reason=no-endpoints&limit=1": {3000},
		"model=model-200":             {200},
		"model=model-200&status=2xx":  {},
		"reason=any&limit=30": {3000, 2900, 2800, 2700, 2600, 2500, 2400, 2300, 2200, 2100, 2000, 1900,
			1800, 1700, 1600, 1500, 1400, 1300, 1200, 1100, 1000, 900, 800, 700, 600, 500, 400, 300, 200, 100},
		"endpoint=127.0.0.1:9":                {},
		"status=200&model=m&reason=none&n=2":  {2999, 2998},
		"status=503&model=model-1000&limit=9": {1000},
	} {
		code, body := c.get(t, "/debug/requests?format=json&"+query)
		var got struct {
			Requests []struct {
				ID string `json:"id"`
			} `json:"requests"`
			Partial bool `json:"partial"`
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil || code != 200 || got.Partial ||
			len(got.Requests) != len(want) {
			t.Errorf("%s: %d, %d requests, partial %v, %v; want %d", query, code, len(got.Requests), got.Partial, err,
				len(want))
			continue
		}
		for i, id := range want {
			if got.Requests[i].ID != s.tree.formatID(id) {
				t.Errorf("%s: request %d is %s, want %d", query, i, got.Requests[i].ID, id)
			}
		}
	}
}

// A list that is followed has each request once, when it has ended, however many have come since it did, and ends when
// it is interrupted.
func TestRequestsAreFollowed(t *testing.T) {
	s := running(t)
	now := time.Now()
	refused := func(id messages.RequestID, took time.Duration) {
		s.tree.picker.Refused(messages.RequestRefused{Record: messages.Record{
			Request: id, Model: fmt.Sprint("model-", id), Status: 503, Reason: messages.NoEndpoints, Agent: "a-client",
			Path: "/v1/embeddings", ArrivedAt: time.Now().Add(-took), Ended: took,
		}})
	}
	refused(1, time.Since(now))
	refused(2, time.Since(now))
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out, c := &shared{}, newRequests()
	c.SetOut(out)
	c.SetArgs([]string{"--follow", "--addr", s.at("metrics-port")})
	failed := make(chan error, 1)
	go func() { failed <- c.ExecuteContext(ctx) }()
	soonTrue(t, "both are listed", func() bool { return strings.Contains(out.String(), "model-2") })
	for id := range messages.RequestID(followed) { // they have ended before it, and came later
		s.tree.picker.Refused(messages.RequestRefused{Record: messages.Record{
			Request: 100 + id, ArrivedAt: now.Add(-time.Minute),
		}})
	}
	refused(3, time.Hour)
	soonTrue(t, "the third is listed", func() bool { return strings.Contains(out.String(), "model-3") })
	interrupt()
	if err := <-failed; err != nil {
		t.Error(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 4 || !strings.HasPrefix(strings.TrimSpace(lines[0]), "id ") {
		t.Fatalf("got %q, want a heading and three requests", lines)
	}
	for i, line := range lines[1:] {
		for _, part := range []string{fmt.Sprint("model-", i+1), "/v1/embeddings", "a-client"} {
			if !strings.Contains(line, part) {
				t.Errorf("line %d: %q, want %q in it", i, line, part)
			}
		}
	}
}
