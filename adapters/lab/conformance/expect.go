package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

func canonical(endpoint string) (string, error) {
	a, err := netip.ParseAddrPort(endpoint)
	if err != nil {
		return "", fmt.Errorf("%q: want ip:port, IPv6 in brackets: %w", endpoint, err)
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).String(), nil
}

// start opens a call and plays its request.
func (t *checkRun) start(m message) (*call, error) {
	c, err := t.open(t.ctx)
	if err != nil {
		return nil, err
	}
	return c, c.play(exchange.Request, m)
}

// destinations checks the pick that a call brought: one header, the same text in the metadata, nothing else there,
// known endpoints without doubles, in the message that the mode has for it.
func (c *call) destinations() ([]string, error) {
	if err := c.clean(); err != nil {
		return nil, err
	}
	if c.refused() {
		return nil, fmt.Errorf("want a pick, got an immediate response %d: %.200s", c.immediate.GetStatus().GetCode(),
			c.immediate.GetBody())
	}
	w := c.look(exchange.Request)
	var lines []string
	for _, f := range w.headers {
		if f.Name == destinationKey {
			lines = append(lines, f.Value)
		}
	}
	fields := c.stream.Metadata(lbNamespace).GetFields()
	switch {
	case len(lines) != 1 || w.pickIn == exchange.Nothing:
		return nil, fmt.Errorf("want one header %s set by the EPP, got %q", destinationKey, lines)
	case fields[destinationKey].GetStringValue() != lines[0]:
		return nil, fmt.Errorf("header says %q, metadata %q", lines[0], fields[destinationKey].GetStringValue())
	// What is not shown to the EPP comes back to it in the access log, by an id of its own.
	case c.modes.Response.Body != filterv3.ProcessingMode_NONE && foreign(fields) > 0:
		return nil, fmt.Errorf("metadata %s has %d keys, want %s, and %s if the EPP has any", lbNamespace, len(fields),
			destinationKey, scoresKey)
	case w.mutated > 10:
		return nil, fmt.Errorf("%d header mutations with the pick, want 10 at most", w.mutated)
	}
	want := exchange.HeadersAnswer
	if c.modes.Request.Buffers() && w.bodySent > 0 {
		want = exchange.BodyAnswer
	}
	if w.pickIn != want {
		return nil, errors.New("the pick is in the wrong message of its direction")
	}
	return c.checkList(lines[0])
}

// foreign returns how many entries of a pick's metadata the endpoint picker protocol does not have. Scores, which it
// leaves to the EPP, are numbers by endpoint.
func foreign(fields map[string]*structpb.Value) (n int) {
	for key, value := range fields {
		if key != destinationKey && (key != scoresKey || !areScores(value)) {
			n++
		}
	}
	return n
}

func areScores(v *structpb.Value) bool {
	for endpoint, score := range v.GetStructValue().GetFields() {
		if _, err := canonical(endpoint); err != nil || !isNumber(score) {
			return false
		}
	}
	return v.GetStructValue() != nil
}

func isNumber(v *structpb.Value) bool {
	_, ok := v.GetKind().(*structpb.Value_NumberValue)
	return ok
}

func (c *call) checkList(text string) ([]string, error) {
	list := strings.Split(text, ",")
	for i, e := range list {
		address, err := canonical(e)
		switch {
		case err != nil:
			return nil, fmt.Errorf("destination %w", err)
		case !slices.Contains(c.Endpoints, address):
			return nil, fmt.Errorf("destination %s is not of the pool", e)
		case slices.Contains(list[:i], e):
			return nil, fmt.Errorf("destination %s stands twice in %q", e, text)
		}
	}
	if c.Destinations > 0 && len(list) > c.Destinations {
		return nil, fmt.Errorf("%d destinations, want %d at most", len(list), c.Destinations)
	}
	return list, nil
}

// intact checks that a direction brought its message through: every byte, one end, its trailers.
func (c *call) intact(id exchange.Direction) error {
	if err := c.clean(); err != nil {
		return err
	}
	mode, w := c.mode(id), c.look(id)
	body := w.sent.body()
	switch {
	case mode.SkipHeaders && w.headersN > 0:
		return fmt.Errorf("%s direction: a headers answer, but no headers were sent", id)
	case mode.Duplex() && string(w.back) != body:
		return fmt.Errorf("%s direction: %s", id, difference(body, w.back))
	case w.replaced && string(w.back) != body:
		return fmt.Errorf("%s direction: the body was replaced by %d bytes", id, len(w.back))
	case !mode.Duplex() && w.bodyN != w.bodySent:
		return fmt.Errorf("%s direction: %d body answers to %d messages", id, w.bodyN, w.bodySent)
	case mode.Duplex() && !w.ended && !unseen(mode, w.sent):
		return fmt.Errorf("%s direction: its end was not answered", id)
	case w.sent.trailers != nil && mode.Trailers && w.trailersN != 1 && (w.trailersN > 1 || !c.left(id)):
		return fmt.Errorf("%s direction: %d trailers answers, want 1", id, w.trailersN)
	}
	return nil
}

// difference tells where two bodies part.
func difference(want string, got []byte) string {
	n := 0
	for n < len(want) && n < len(got) && want[n] == got[n] {
		n++
	}
	return fmt.Sprintf("sent %d bytes, %d came back, equal up to byte %d", len(want), len(got), n)
}

// served ends a call that must have been picked for.
func (c *call) served() error {
	if _, err := c.destinations(); err != nil {
		return err
	}
	if err := c.intact(exchange.Request); err != nil {
		return err
	}
	return c.finish()
}

// turnedAway ends a call that must have been refused with one of the statuses, none for any,
// in the form that proxies read.
func (c *call) turnedAway(statuses ...int) error {
	if !c.refused() {
		return fmt.Errorf("want an immediate response %v, got none", statuses)
	}
	r := c.immediate
	code := int(r.GetStatus().GetCode())
	if len(statuses) > 0 && !slices.Contains(statuses, code) || code < 200 {
		return fmt.Errorf("want an immediate response %v, got %d: %.200s", statuses, code, r.GetBody())
	}
	for _, h := range r.GetHeaders().GetSetHeaders() {
		name := strings.ToLower(h.GetHeader().GetKey())
		switch {
		case name == "content-length" || name == "transfer-encoding" || name == "connection":
			return fmt.Errorf("the immediate response sets %s", name)
		case h.GetHeader().GetValue() != "":
			return fmt.Errorf("the immediate response sets %s in value, only raw_value is read", name)
		}
	}
	return c.finish()
}

// errorObject checks that a refusal is an error of the OpenAI API.
func (c *call) errorObject() error {
	contentType := ""
	for _, h := range c.immediate.GetHeaders().GetSetHeaders() {
		if strings.EqualFold(h.GetHeader().GetKey(), "content-type") {
			contentType = string(h.GetHeader().GetRawValue())
		}
	}
	var body struct {
		Error *struct{ Message, Type string }
	}
	err := json.Unmarshal(c.immediate.GetBody(), &body)
	switch {
	case !strings.HasPrefix(contentType, "application/json"):
		return fmt.Errorf("content-type of the refusal is %q, want application/json", contentType)
	case err != nil || body.Error == nil || body.Error.Message == "":
		return fmt.Errorf("the refusal is no error object: %.100s", bytes.TrimSpace(c.immediate.GetBody()))
	}
	return nil
}

// pick plays a request that must be picked for.
func (t *checkRun) pick(m message) error {
	c, err := t.start(m)
	if err != nil {
		return err
	}
	return c.served()
}

// refuse plays a request that must be refused.
func (t *checkRun) refuse(m message, statuses ...int) error {
	c, err := t.start(m)
	if err != nil {
		return err
	}
	return c.turnedAway(statuses...)
}

// pickOr plays a request that may be refused, but only with one of the statuses.
func (t *checkRun) pickOr(m message, statuses ...int) error {
	c, err := t.start(m)
	if err != nil {
		return err
	}
	return c.servedOr(statuses...)
}

func (c *call) servedOr(statuses ...int) error {
	if c.refused() {
		return c.turnedAway(statuses...)
	}
	return c.served()
}

// begin plays a request up to where its response may come. It must be picked for. Where its headers are not shown it
// cannot be, and an EPP may refuse what it is shown: then the request is one of which nothing is shown.
func (t *checkRun) begin(m message) (*call, error) {
	c, err := t.start(m)
	switch {
	case err != nil:
		return nil, err
	case headed(t.modes):
		_, err = c.destinations()
		return c, err
	case c.refused():
		if err := c.turnedAway(); err != nil {
			return nil, err
		}
		if c, err = t.start(bare("GET", "/v1/models")); err != nil {
			return nil, err
		}
	}
	return c, c.intact(exchange.Request)
}

// whole plays a request, and its response.
func (t *checkRun) whole(response message) (*call, error) {
	c, err := t.begin(t.chat())
	if err != nil {
		return c, err
	}
	if err := c.play(exchange.Response, response); err != nil {
		return c, err
	}
	return c, c.answeredWell()
}

// answeredWell checks a response that was played.
func (c *call) answeredWell() error {
	if c.refused() {
		return fmt.Errorf("an immediate response %d in the response direction", c.immediate.GetStatus().GetCode())
	}
	return c.intact(exchange.Response)
}

// watches hear what health says of some services.
type watches map[string]healthpb.Health_WatchClient

func watchHealth(ctx context.Context, h healthpb.HealthClient, names ...string) (watches, error) {
	w := watches{}
	for _, name := range names {
		stream, err := h.Watch(ctx, &healthpb.HealthCheckRequest{Service: name})
		if err != nil {
			return nil, fmt.Errorf("watch of %q: %w", name, err)
		}
		w[name] = stream
	}
	return w, w.hear(serving)
}

// hear waits until each has heard this. That a watch ends says nothing about health: its client must be told.
func (w watches) hear(want healthpb.HealthCheckResponse_ServingStatus) error {
	for name, stream := range w {
		for got := healthpb.HealthCheckResponse_UNKNOWN; got != want; {
			m, err := stream.Recv()
			if err != nil {
				return fmt.Errorf("watch of %q ended before it heard %v: %w", name, want, err)
			}
			got = m.GetStatus()
		}
	}
	return nil
}
