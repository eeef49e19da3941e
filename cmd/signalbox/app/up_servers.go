package app

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf16"

	"github.com/signalbox-epp/signalbox/adapters/admin"
	"github.com/signalbox-epp/signalbox/adapters/modelserver"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

const (
	lookEvery = time.Second
	// After patientLooks looks a server whose pages cannot all be read is asked at each patienceEvery-th look only.
	patientLooks  = 10
	patienceEvery = 10
	namedModels   = 5 // in a line
)

// serverWatch looks at each server of the pool until its pages could be read, and again when its metrics page fails.
type serverWatch struct {
	fetcher *modelserver.Fetcher
	pool    *endpoints.Published
	say     func(format string, args ...any)
	model   func(name string) // takes the first model that a server names; called once

	seen map[messages.EndpointID]*watched
	told bool // model was called
}

// watched is what was last seen of a server.
type watched struct {
	name  string
	text  string // the description that was printed last
	looks int    // looks since it was last well
	well  bool   // all its pages could be read at the last look
	there bool   // one of its pages could be read once
	found modelserver.Found
}

// run looks every second until ctx is done.
func (w *serverWatch) run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	w.seen = map[messages.EndpointID]*watched{}
	for {
		w.look(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// look asks the servers that are due, all at once, and says what is new.
func (w *serverWatch) look(ctx context.Context) {
	var asked []*watched
	var looks sync.WaitGroup
	now := w.pool.Snapshot().Endpoints
	for _, e := range now {
		s := w.seen[e.ID]
		if s == nil {
			s = w.newWatched(e.Spec)
			w.seen[e.ID] = s
		}
		if s.due(e.Failing()) {
			asked = append(asked, s)
			looks.Go(func() { s.found = w.fetcher.Look(e.Spec) })
		}
	}
	looks.Wait()
	if ctx.Err() != nil {
		return // looks that were cut short say nothing of a server
	}
	for _, s := range asked {
		w.tell(s)
	}
	for id, s := range w.seen {
		if slices.ContainsFunc(now, func(e *endpoints.Endpoint) bool { return e.ID == id }) {
			continue
		}
		delete(w.seen, id)
		if !slices.ContainsFunc(now, func(e *endpoints.Endpoint) bool { return nameOf(e.Spec) == s.name }) {
			w.say("server %s: left the endpoints", s.name)
		}
	}
}

// newWatched returns a server that is new to the pool. A server that has restarted is new there too, under its name and
// address: its description is not said again unless it has changed.
func (w *serverWatch) newWatched(spec messages.EndpointSpec) *watched {
	s := &watched{name: nameOf(spec)}
	for _, before := range w.seen {
		if before.name == s.name {
			s.text, s.there = before.text, before.there
		}
	}
	return s
}

// due reports whether a server is to be asked now. failing says that the newest scrape of its metrics page failed.
func (s *watched) due(failing bool) bool {
	if s.well && !failing {
		return false
	}
	s.looks++
	return s.looks <= patientLooks || s.looks%patienceEvery == 0
}

func (w *serverWatch) tell(s *watched) {
	s.well = s.found.NoMetrics == "" && s.found.NoModels == ""
	if s.well {
		s.looks = 0
	}
	s.there = s.there || s.found.NoMetrics == "" || s.found.NoModels == ""
	if text := describeServer(s.found, s.there); text != s.text {
		s.text = text
		w.say("server %s: %s", s.name, text)
	}
	if !w.told && len(s.found.Models) > 0 {
		w.told = true
		w.model(s.found.Models[0])
	}
}

// nameOf returns how people know an endpoint: its name, and its address if the name is another.
func nameOf(e messages.EndpointSpec) string {
	if e.Name == string(e.Address) {
		return admin.Clean(e.Name)
	}
	return admin.Clean(e.Name + " (" + string(e.Address) + ")")
}

// dialing matches what Go writes before the cause of a connection that failed.
var dialing = regexp.MustCompile(`dial tcp \S+: (connect: )?`)

// describeServer returns what was found at a server, or what is wrong there. there says that it has answered once.
func describeServer(f modelserver.Found, there bool) string {
	noMetrics, noModels := dialing.ReplaceAllString(f.NoMetrics, ""), dialing.ReplaceAllString(f.NoModels, "")
	if noMetrics != "" && noMetrics == noModels {
		state := "not there yet"
		if there {
			state = "no longer there"
		}
		return state + ": " + admin.Clean(noMetrics)
	}
	var parts []string
	if f.Engine != "" {
		parts = append(parts, f.Engine)
	}
	if noModels == "" {
		parts = append(parts, modelsOf(f.Models))
	}
	metrics := "metrics can be read"
	if noMetrics != "" {
		metrics = "its metrics cannot be read (" + admin.Clean(noMetrics) +
			"): it gets requests only while no other server can be chosen"
	}
	if parts = append(parts, metrics); noModels != "" {
		parts = append(parts, "its model list cannot be read ("+admin.Clean(noModels)+")")
	}
	return strings.Join(parts, ", ")
}

func modelsOf(all []string) string {
	switch n := len(all); {
	case n == 0:
		return "no model"
	case n == 1:
		return "model " + admin.Clean(all[0])
	case n > namedModels:
		return fmt.Sprintf("models %s and %d more", admin.Clean(strings.Join(all[:namedModels], " ")), n-namedModels)
	}
	return "models " + admin.Clean(strings.Join(all, " "))
}

// curl returns a command line that asks a model, for any POSIX shell.
func curl(url, model string) string {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	body, err := json.Marshal(struct {
		Model     string    `json:"model"`
		Messages  []message `json:"messages"`
		MaxTokens int       `json:"max_tokens"`
	}{model, []message{{"user", "Hello"}}, 16})
	if err != nil {
		return ""
	}
	return fmt.Sprintf("curl -i %s/v1/chat/completions -H 'content-type: application/json' -d '%s'",
		url, plainJSON(body))
}

// plainJSON returns JSON in which characters that a shell or a terminal could interpret are JSON escapes.
func plainJSON(body []byte) string {
	var b strings.Builder
	for _, r := range string(body) {
		if r >= ' ' && r <= '~' && r != '\'' {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

// statusOf returns the status line: counts of requests, and each server in a word. left is how many clients left before
// their answer had come.
func statusOf(arrived, failed, left int, servers []admin.EndpointView) string {
	inflight := 0
	var words, unhealthy []string
	for i := range servers {
		inflight += servers[i].InflightRequests
		word := wordOf(&servers[i])
		name := admin.Clean(servers[i].Name)
		words = append(words, name+" "+word)
		if word != healthyWord {
			unhealthy = append(unhealthy, name+" "+word)
		}
	}
	switch n := len(servers); {
	case n == 0:
		words = []string{"no servers"}
	case n > namedServers:
		words = append([]string{fmt.Sprintf("%d of %d servers healthy", n-len(unhealthy), n)}, unhealthy...)
	}
	gone := ""
	if left > 0 {
		gone = fmt.Sprintf("left by clients %d, ", left)
	}
	return fmt.Sprintf("requests %d, failed %d, %sin flight %d | %s",
		arrived, failed, gone, inflight, strings.Join(words, " | "))
}

const (
	namedServers = 4 // in the status while they are healthy
	healthyWord  = "healthy"
)

func wordOf(e *admin.EndpointView) string {
	switch {
	case e.Outlier != nil:
		return e.Outlier.State
	case e.Failing:
		return "cannot be read"
	case e.Sample == nil && e.Scraped:
		return "not read yet"
	}
	return healthyWord
}
