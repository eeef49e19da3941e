package conformance

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

// headerChecks are about what headers hold, and what the EPP does to them.
var headerChecks = []Check{
	{
		Number: 43, Name: "odd header values", in: headed,
		Sends: "bytes that are not UTF-8, an empty value, 60 KB in one line, 97 lines, 200 lines, several lines of " +
			"one name", Wants: "a pick; no line lost or joined",
		run: oddHeaders,
	},
	{
		Number: 44, Name: "odd paths and pseudo headers", in: headed,
		Sends: "two :path, two :method, no :path, an absolute one, //, %2e", Wants: "an answer, twice the same",
		run: oddPaths,
	},
	{
		Number: 45, Name: "values not in raw_value", in: headed,
		Sends: "headers whose values stand in value", Wants: "read as if they stood in raw_value",
		run: func(t *checkRun) error {
			t.plain = true
			if err := t.pick(t.chat()); err != nil || !read(t.modes) {
				return err
			}
			return t.refuse(post(chatPath, "Say hello."), 400)
		},
	},
	{
		Number: 46, Name: "destination from the client", in: headed,
		Sends: "a request with " + destinationKey, Wants: "a pick of the EPP's own in its place",
		run: func(t *checkRun) error {
			m := t.chat().with(destinationKey, "192.0.2.66:1").with(destinationKey, "192.0.2.67:1")
			return t.pick(m)
		},
	},
	{
		Number: 58, Name: "what may be changed", in: replied,
		Sends: "a whole exchange", Wants: "no change of :method, :authority, :scheme, host, content-length, " +
			"transfer-encoding, connection, x-envoy-*; 10 changes at most",
		run: func(t *checkRun) error {
			c, err := t.whole(completion())
			if err != nil {
				return err
			}
			for _, a := range c.answers {
				if err := permitted(a); err != nil {
					return err
				}
			}
			return c.finish()
		},
	},
	{
		Number: 59, Name: "repeated response headers", in: repliedHeaders,
		Sends: "three set-cookie, two vary", Wants: "all of them as they were: no echo of headers",
		run: repeatedHeaders,
	},
}

func oddHeaders(t *checkRun) error {
	lines := func(n int) message {
		m := t.chat()
		for i := len(m.headers) + 1; i < n; i++ { // and x-request-id
			m = m.with("x-line-"+strconv.Itoa(i), "v")
		}
		return m
	}
	repeated := t.chat().with("accept", "text/plain").with("accept", "text/html").with("cookie", "a=1").with("cookie",
		"b=2")
	for name, m := range map[string]message{
		"not UTF-8": t.chat().with("x-tenant", "caf\xe9 \xff").with("user-agent", "\xf0\x28"),
		"empty":     t.chat().with("x-empty", "").with("user-agent", ""),
		"60 KB":     t.chat().with("x-long", strings.Repeat("x", 60_000)),
		"97 lines":  lines(97),
		"200 lines": lines(200),
		"repeated":  repeated,
	} {
		t.limits = exchange.Limits{} // a proxy takes 100 lines, if it is not told otherwise
		if len(m.headers) > 100 {
			t.limits.Lines = 250
		}
		c, err := t.start(m)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := c.served(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		got := c.look(exchange.Request).headers
		for _, f := range m.headers {
			if count(got, f) != count(m.headers, f) {
				return fmt.Errorf("%s: line %s: %.40q stood %d times, now %d", name, f.Name, f.Value,
					count(m.headers, f), count(got, f))
			}
		}
	}
	return nil
}

func count(h exchange.Headers, line exchange.Field) int {
	n := 0
	for _, f := range h {
		if f == line {
			n++
		}
	}
	return n
}

func oddPaths(t *checkRun) error {
	absolute := t.chat()
	absolute.headers[1].Value = "http://models.example" + chatPath
	for name, m := range map[string]message{
		"two :path":   t.chat().with(":path", "/v1/completions"),
		"two :method": t.chat().with(":method", "GET"),
		"no :path":    t.chat().without(":path"),
		"absolute":    absolute,
		"//":          post("//v1//chat/completions", t.prompt("Say hello.")),
		"%2e":         post("/v1/%2e%2e/v1/chat/completions", t.prompt("Say hello.")),
		"query":       post(chatPath+"?a=%zz", t.prompt("Say hello.")),
		"nothing":     {headers: exchange.Headers{{Name: "x-nothing", Value: "1"}}, chunks: []string{"{}"}},
	} {
		var statuses [2]int
		for i := range statuses {
			c, err := t.start(m)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			statuses[i] = int(c.immediate.GetStatus().GetCode())
			if err := c.servedOr(400, 404); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		if statuses[0] != statuses[1] {
			return fmt.Errorf("%s: refused with %d, then with %d", name, statuses[0], statuses[1])
		}
	}
	return nil
}

// permitted looks at one answer's changes of headers.
func permitted(a exchange.Answer) error {
	forbidden := func(name string) bool {
		switch strings.ToLower(name) {
		case ":method", ":authority", ":scheme", "host", "content-length", "transfer-encoding", "connection":
			return true
		}
		return strings.HasPrefix(strings.ToLower(name), "x-envoy-")
	}
	m := a.Mutation
	for _, name := range m.GetRemoveHeaders() {
		if forbidden(name) {
			return fmt.Errorf("%s is removed in the %s direction", name, a.Direction)
		}
	}
	for _, h := range m.GetSetHeaders() {
		if forbidden(h.GetHeader().GetKey()) {
			return fmt.Errorf("%s is set in the %s direction", h.GetHeader().GetKey(), a.Direction)
		}
	}
	if n := len(m.GetRemoveHeaders()) + len(m.GetSetHeaders()); n > 10 {
		return errors.New(strconv.Itoa(n) + " changes of headers in one answer, want 10 at most")
	}
	return nil
}

func repeatedHeaders(t *checkRun) error {
	m := completion().with("set-cookie", "a=1; Path=/").with("set-cookie", "b=2").with("set-cookie", "b=2").with("vary",
		"accept").with("vary", "origin")
	c, err := t.whole(m)
	if err != nil {
		return err
	}
	got := c.look(exchange.Response).headers
	for i, f := range m.headers {
		if i >= len(got) || got[i] != f {
			return fmt.Errorf("line %s: %q is gone, or elsewhere: %v", f.Name, f.Value, got)
		}
	}
	return c.finish()
}
