package conformance

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

// pickChecks are about where requests go, and how they are refused.
var pickChecks = []Check{
	{
		Number: 31, Name: "no body: headers decide", in: request(exchange.Mode{Body: exchange.None}),
		Sends: "headers of a request that has a body", Wants: "a pick, and nothing more",
		run: func(t *checkRun) error {
			c, err := t.start(t.chat())
			if err != nil {
				return err
			}
			if err := c.served(); err != nil {
				return err
			}
			if n := len(c.answers); n != 1 {
				return fmt.Errorf("%d answers, want 1", n)
			}
			return nil
		},
	},
	{
		Number: 47, Name: "subset of the pool", in: headed,
		Sends: "a subset of one endpoint, of all in another order", Wants: "a pick within the subset",
		run: func(t *checkRun) error {
			for _, e := range t.Endpoints {
				if err := t.pickWithin(subset(e), e); err != nil {
					return err
				}
			}
			backwards := slices.Clone(t.Endpoints)
			slices.Reverse(backwards)
			return t.pickWithin(subset(list(backwards)...), backwards...)
		},
	},
	{
		Number: 48, Name: "empty subset", in: headed,
		Sends: "an empty list", Wants: "an immediate response 503",
		run: func(t *checkRun) error { return t.refuse(t.limited(subset()), 503) },
	},
	{
		Number: 49, Name: "subset of strangers", in: headed,
		Sends: "a list of unknown endpoints", Wants: "an immediate response 503",
		run: func(t *checkRun) error { return t.refuse(t.limited(subset("192.0.2.1:80", "[2001:db8::1]:80")), 503) },
	},
	{
		Number: 50, Name: "subset with junk", in: headed,
		Sends: "numbers, null, objects, text, IPv6, spaces beside one endpoint; a string with commas; junk alone",
		Wants: "the endpoint; 503 for junk alone",
		run: func(t *checkRun) error {
			e := t.Endpoints[0]
			host, _, _ := strings.Cut(e, ":")
			junk := []any{7, nil, map[string]any{"a": 1}, []any{"x"}, "", "not an address", "[2001:db8::1]:80", host,
				true}
			if err := t.pickWithin(subset(append(junk, " "+e+" ")...), e); err != nil {
				return err
			}
			if err := t.pickWithin(hint(structpb.NewStringValue("192.0.2.1:80, "+e+" ,junk,")), e); err != nil {
				return fmt.Errorf("string with commas: %w", err)
			}
			return t.refuse(t.limited(subset(junk[:len(junk)-2]...)), 503)
		},
	},
	{
		Number: 51, Name: "subset on one message alone", in: headed,
		Sends: "a subset with the headers alone, with the body alone, with a request that has no body",
		Wants: "a pick within it each time",
		run:   subsetAlone,
	},
	{
		Number: 52, Name: "no endpoints", in: headed,
		Sends: "a request", Wants: "an immediate response 503, no gRPC error",
		run: func(t *checkRun) error {
			if t.Inside.Empty == nil {
				return notRun("needs an EPP without endpoints")
			}
			t.client = t.Inside.Empty
			return t.refuse(t.chat(), 503)
		},
	},
	{
		Number: 53, Name: "no room", in: headed,
		Sends: "a request", Wants: "an immediate response 429 with retry-after",
		run: func(t *checkRun) error {
			if t.Inside.Saturated == nil {
				return notRun("needs an EPP that is saturated")
			}
			t.client = t.Inside.Saturated
			c, err := t.start(t.chat())
			if err != nil {
				return err
			}
			if err := c.turnedAway(429); err != nil {
				return err
			}
			for _, h := range c.immediate.GetHeaders().GetSetHeaders() {
				if strings.EqualFold(h.GetHeader().GetKey(), "retry-after") {
					return nil
				}
			}
			return errors.New("no retry-after")
		},
	},
	{
		Number: 56, Name: "shape of a refusal", in: headed,
		Sends: "a request that nobody can serve, and the rest of it after the refusal",
		Wants: "exactly one immediate response, status 200 or more, no content-length; nothing after it",
		run:   shape,
	},
	{
		Number: 57, Name: "refusal while the body comes",
		in:    func(m Modes) bool { return headed(m) && (m.Request.Duplex() || m.WithoutWaiting) },
		Sends: "megabytes of a body that goes on after the refusal",
		Wants: "the refusal; the EPP neither waits nor stalls",
		run:   refusedAmid,
	},
	{
		Number: 65, Name: "metadata", in: headed,
		Sends: "a request", Wants: "{" + lbNamespace + ": {" + destinationKey +
			": text}}, perhaps with scores, and nothing else, once",
		run: metadata,
	},
	{
		Number: 66, Name: "list of destinations", in: headed,
		Sends: "20 requests", Wants: "no endpoint twice, not more than configured, IPv6 in brackets",
		run: func(t *checkRun) error {
			for range 20 {
				if err := t.pick(t.chat()); err != nil {
					return err
				}
			}
			return nil
		},
	},
}

func list(endpoints []string) []any {
	var out []any
	for _, e := range endpoints {
		out = append(out, e)
	}
	return out
}

// limited is a chat request with this context on all its messages.
func (t *checkRun) limited(c exchange.Context) message {
	m := t.chat()
	m.context = c
	return m
}

// pickWithin plays a chat request that is limited to some endpoints.
func (t *checkRun) pickWithin(c exchange.Context, endpoints ...string) error {
	return t.within(t.limited(c), endpoints)
}

func (t *checkRun) within(m message, endpoints []string) error {
	c, err := t.start(m)
	if err != nil {
		return err
	}
	got, err := c.destinations()
	if err != nil {
		return err
	}
	for _, e := range got {
		if address, err := canonical(e); err != nil || !slices.Contains(endpoints, address) {
			return fmt.Errorf("destination %s is not of the subset %v", e, endpoints)
		}
	}
	return c.served()
}

func subsetAlone(t *checkRun) error {
	e := t.Endpoints[len(t.Endpoints)-1]
	limit := subset(e)
	m := t.limited(limit)
	m.onBody = &exchange.Context{}
	if err := t.within(m, []string{e}); err != nil {
		return fmt.Errorf("on the headers: %w", err)
	}
	m = bare("GET", "/v1/models")
	m.context = limit
	c, err := t.start(m)
	if err != nil {
		return err
	}
	if !c.refused() { // a list of models may be answered by the EPP itself
		if err := t.within(m, []string{e}); err != nil {
			return fmt.Errorf("without a body: %w", err)
		}
	}
	if !awaited(t.modes) {
		return nil
	}
	m = t.chat()
	m.onBody = &limit
	if err := t.within(m, []string{e}); err != nil {
		return fmt.Errorf("on the body: %w", err)
	}
	return nil
}

func shape(t *checkRun) error {
	c, err := t.start(t.limited(subset()))
	if err != nil {
		return err
	}
	if !c.refused() {
		return errors.New("want an immediate response, got none")
	}
	// What was on its way when the refusal came. The EPP may have left already.
	_ = c.stream.SendMessage(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
		RequestBody: &extprocv3.HttpBody{Body: []byte("late"), EndOfStream: true},
	}})
	return c.turnedAway(503)
}

// refusedAmid keeps sending until the EPP has answered. A body that is awaited is refused for its size,
// the others for their subset.
func refusedAmid(t *checkRun) error {
	m, want, limit := t.limited(subset()), 503, int64(8<<20)
	if awaited(t.modes) {
		if t.BodyLimit == 0 {
			return notRun("needs to know the limit of bodies")
		}
		m, want, limit = t.chat(), 413, t.BodyLimit+8<<20
	}
	c, err := t.open(t.ctx)
	if err != nil {
		return err
	}
	m = m.without("content-length")
	err = c.stream.SendHeaders(exchange.Request, m.headers, false, m.context)
	piece := make([]byte, 64<<10)
	for sent := int64(0); err == nil && sent < limit && !c.refused(); sent += int64(len(piece)) {
		err = c.stream.SendBody(exchange.Request, piece, false)
	}
	if done, err := c.sent(err); done && err != nil {
		return err
	}
	if err := c.await("a refusal", func() bool { return false }); err != nil {
		return err
	}
	return c.turnedAway(want)
}

func metadata(t *checkRun) error {
	c, err := t.start(t.chat())
	if err != nil {
		return err
	}
	if err := c.served(); err != nil {
		return err
	}
	times := 0
	for _, a := range c.answers {
		if len(a.Message.GetDynamicMetadata().GetFields()) > 0 {
			times++
			if w := c.look(exchange.Request); a.Kind != w.pickIn {
				return errors.New("metadata comes with another message than the header")
			}
		}
	}
	if times != 1 {
		return fmt.Errorf("metadata in %d messages, want 1", times)
	}
	return nil
}
