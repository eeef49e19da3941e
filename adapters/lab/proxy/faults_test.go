package proxy

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

// plant sends messages instead of the right answer to one step.
func plant(at string, messages ...*answer) func(string, *eppStream) (bool, error) {
	return func(step string, s *eppStream) (bool, error) {
		if step != at {
			return false, nil
		}
		for _, m := range messages {
			if err := s.Send(m); err != nil {
				return true, err
			}
		}
		return true, nil
	}
}

// before sends messages and then the right answer.
func before(at string, messages ...*answer) func(string, *eppStream) (bool, error) {
	instead := plant(at, messages...)
	return func(step string, s *eppStream) (bool, error) {
		_, err := instead(step, s)
		return false, err
	}
}

// after answers a step and then sends messages.
func after(at string, messages ...*answer) func(string, *eppStream) (bool, error) {
	return func(step string, s *eppStream) (bool, error) {
		if step != at || s.busy {
			return false, nil
		}
		s.busy = true
		last := s.epp.last()
		if err := s.answer(last); err != nil {
			return true, err
		}
		return plant(at, messages...)(step, s)
	}
}

func (e *fakeEPP) last() *ask {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.asks[len(e.asks)-1]
}

func immediateAnswer(code typev3.StatusCode, body string, m *extprocv3.HeaderMutation) *answer {
	r := &extprocv3.ImmediateResponse{Status: &typev3.HttpStatus{Code: code}, Body: []byte(body), Headers: m,
		Details: "two words"}
	return &answer{Response: &extprocv3.ProcessingResponse_ImmediateResponse{ImmediateResponse: r}}
}

func TestPlantedFaultsAreReportedAndFatal(t *testing.T) {
	const q, s = exchange.Request, exchange.Response
	replace := headersAnswer(q, nil)
	replace.GetRequestHeaders().Response.Status = extprocv3.CommonResponse_CONTINUE_AND_REPLACE
	both := setHeaders("a", "b")
	both.SetHeaders[0].Header.Value = "c"
	many := &extprocv3.HeaderMutation{}
	for range 101 {
		many.RemoveHeaders = append(many.RemoveHeaders, "x")
	}
	tests := map[string]struct {
		fault     func(string, *eppStream) (bool, error)
		direction exchange.Direction
		rule      exchange.Rule
	}{
		"response direction answered during the request": {plant("qE", headersAnswer(s, nil)), s,
			exchange.WrongDirection},
		"response body during the request": {plant("qE", bodyAnswer(s, []byte("x"), false)), s,
			exchange.WrongDirection},
		"response trailers during the request": {plant("qE", trailersAnswer(s, nil)), s, exchange.WrongDirection},
		"two headers answers": {plant("qE", headersAnswer(q, nil), headersAnswer(q, nil)), q,
			exchange.DuplicateHeaders},
		"two response headers answers": {after("rH", headersAnswer(s, nil)), s, exchange.DuplicateHeaders},
		"body before headers":          {plant("qE", bodyAnswer(q, []byte("x"), true)), q, exchange.BodyBeforeHeaders},
		"response body before headers": {plant("rH", bodyAnswer(s, []byte("x"), false)), s, exchange.BodyBeforeHeaders},
		"body although none was sent":  {plant("rH", bodyAnswer(q, []byte("x"), true)), q, exchange.BodyNotSent},
		"plain body answer": {plant("qE", headersAnswer(q, nil), commonBody(q, &extprocv3.CommonResponse{})),
			q, exchange.PlainBody},
		"whole body in the answer": {plant("qE", headersAnswer(q, nil), commonBody(q, &extprocv3.CommonResponse{
			BodyMutation: &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_Body{Body: []byte("x")}},
		})), q, exchange.PlainBody},
		"body after the end": {after("qE", bodyAnswer(q, nil, true)), q, exchange.AfterEnd},
		"trailers nobody asked for": {plant("qE", headersAnswer(q, nil), trailersAnswer(q, nil)), q,
			exchange.TrailersNotSent},
		"late trailers with a mutation": {after("qE", trailersAnswer(q, setHeaders("a", "b"))), q,
			exchange.TrailersNotSent},
		"answer of no kind":    {plant("qE", &answer{}), q, exchange.UnknownAnswer},
		"continue and replace": {plant("qE", replace), q, exchange.ReplaceInDuplex},
		"newline in a header value": {plant("qE", headersAnswer(q, setHeaders("a", "b\nc"))), q,
			exchange.InvalidMutation},
		"NUL in a header value": {plant("qE", headersAnswer(q, setHeaders("a", "b\x00"))), q,
			exchange.InvalidMutation},
		"space in a header name": {plant("qE", headersAnswer(q, setHeaders("a b", "c"))), q,
			exchange.InvalidMutation},
		"value and raw_value": {plant("qE", headersAnswer(q, both)), q, exchange.InvalidMutation},
		"101 removals":        {plant("qE", headersAnswer(q, many)), q, exchange.InvalidMutation},
		"invalid response header mutation": {plant("rH", headersAnswer(s, setHeaders("a", "b\r"))), s,
			exchange.InvalidMutation},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			epp := startEPP(t, startUpstream(t, echoUpstream))
			epp.fault = test.fault
			r := startRig(t, Config{EPP: epp.address})
			var source io.Reader = strings.NewReader("hello")
			if test.rule == exchange.BodyNotSent {
				source = http.NoBody
			}
			response, body := r.post(source, nil)
			until(t, "request ended", func() bool { return r.proxy.Stats().Active == 0 })
			found := r.violations()
			// A destination that is missing because of the fault is reported too.
			if len(found) == 0 || found[0].Rule != test.rule || found[0].Direction != test.direction ||
				!found[0].Fatal {
				t.Fatalf("violations: got %+v, want %s in the %s direction; response %v %s", found, test.rule,
					test.direction,
					response, body)
			}
			if response != nil && response.StatusCode != http.StatusServiceUnavailable && body == "hello" {
				t.Errorf("the request succeeded: %v", response)
			}
			if n := r.proxy.Stats().Violations; n != int64(len(found)) {
				t.Errorf("counted %d violations, reported %d", n, len(found))
			}
		})
	}
}

func TestToleratedFaultsAreReported(t *testing.T) {
	const q, s = exchange.Request, exchange.Response
	withMetadata := func(m *answer, md *structpb.Struct) *answer { m.DynamicMetadata = md; return m }
	value := &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: "a",
		Value: "b"}}}}
	cleared := headersAnswer(s, nil)
	cleared.GetResponseHeaders().Response.ClearRouteCache = true
	tests := map[string]struct {
		fault func(string, *eppStream) (bool, error)
		rule  exchange.Rule
	}{
		"empty trailers after a complete direction": {after("qE", trailersAnswer(q, nil)), exchange.TrailersNotSent},
		"forbidden header": {plant("rH", headersAnswer(s, setHeaders("x-envoy-a", "b"))),
			exchange.IgnoredHeader},
		"content-length": {plant("rH", headersAnswer(s, setHeaders("content-length", "1"))),
			exchange.IgnoredHeader},
		"removal of a pseudo header": {plant("rH",
			headersAnswer(s, &extprocv3.HeaderMutation{RemoveHeaders: []string{":status"}})), exchange.IgnoredHeader},
		"transfer-encoding": {plant("rH", headersAnswer(s, setHeaders("transfer-encoding", "chunked"))),
			exchange.ConnectionHeader},
		"value instead of raw_value": {plant("rH", headersAnswer(s, value)), exchange.ValueNotRaw},
		"foreign metadata namespace": {plant("rH",
			withMetadata(headersAnswer(s, nil), metadata("other", "a", "b"))), exchange.MetadataNamespace},
		"clear_route_cache in the response": {plant("rH", cleared), exchange.IgnoredField},
		"timeout override": {before("rH", &answer{OverrideMessageTimeout: durationpb.New(1)}),
			exchange.IgnoredField},
		"mutation in a body answer": {before("rE", commonBody(s, &extprocv3.CommonResponse{
			HeaderMutation: setHeaders("a", "b"),
			BodyMutation: &extprocv3.BodyMutation{
				Mutation: &extprocv3.BodyMutation_StreamedResponse{StreamedResponse: &extprocv3.StreamedBodyResponse{}},
			},
		})), exchange.IgnoredField},
		"large chunk": {plant("rE", bodyAnswer(s, []byte(strings.Repeat("x", 64<<10+1)), true)),
			exchange.ChunkTooLarge},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			epp := startEPP(t, startUpstream(t, echoUpstream))
			epp.fault = test.fault
			r := startRig(t, Config{EPP: epp.address})
			response, body := r.post(strings.NewReader("hello"), nil)
			if response == nil || response.StatusCode != http.StatusOK || test.rule != exchange.ChunkTooLarge &&
				body != "hello" {
				t.Fatalf("response %v: %s", response, body)
			}
			found := r.violations()
			if len(found) != 1 || found[0].Rule != test.rule || found[0].Fatal {
				t.Errorf("violations: got %+v, want one tolerated %s", found, test.rule)
			}
		})
	}
}

func TestTrailersFaults(t *testing.T) {
	pickThenChunk := func(step string, s *eppStream) (bool, error) {
		if step != "qT" {
			return false, nil
		}
		return true, errors.Join(s.pick(), s.Send(bodyAnswer(exchange.Request, nil, false)))
	}
	tests := map[string]struct {
		fault func(string, *eppStream) (bool, error)
		body  string
		rule  exchange.Rule
	}{
		"end of stream although trailers follow": {plant("rT", bodyAnswer(exchange.Response, nil, true)), "body",
			exchange.EndBeforeTrailers},
		"trailers before headers": {plant("qT", trailersAnswer(exchange.Request, nil)), "",
			exchange.TrailersBeforeHeaders},
		"empty chunk in headers and trailers": {pickThenChunk, "", exchange.BodyBeforeTrailers},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			epp := startEPP(t, startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(w, r.Body)
				w.(http.Flusher).Flush()
				w.Header().Set(http.TrailerPrefix+"X-End", "1")
			}))
			epp.fault = test.fault
			r := startRig(t, Config{EPP: epp.address})
			response, body := r.post(io.MultiReader(strings.NewReader(test.body)), func(q *http.Request) {
				q.Trailer = http.Header{"X-Up": {"up"}}
			})
			found := r.violations()
			if len(found) == 0 || found[0].Rule != test.rule {
				t.Fatalf("violations: got %+v, want %s; response %v %s", found, test.rule, response, body)
			}
			if !found[0].Fatal && (body != "body" || len(response.Trailer) != 0) {
				t.Errorf("tolerated: got %q with trailers %v, want the body and none", body, response.Trailer)
			}
		})
	}
}

func TestDestinationReports(t *testing.T) {
	upstream := startUpstream(t, echoUpstream)
	tests := map[string]struct {
		header, metadata string
		rule             exchange.Rule
		status           int
	}{
		"header differs":     {"10.0.0.1:1", upstream, exchange.DestinationMismatch, 200},
		"junk before a good": {"junk," + upstream, "junk," + upstream, exchange.DestinationInvalid, 200},
		"only junk":          {"junk", "junk", exchange.DestinationInvalid, 503},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			epp := startEPP(t, "")
			m := headersAnswer(exchange.Request, setHeaders("x-gateway-destination-endpoint", test.header))
			m.DynamicMetadata = metadata("envoy.lb", "x-gateway-destination-endpoint", test.metadata)
			epp.fault = func(step string, s *eppStream) (bool, error) {
				if step == "qE" {
					s.headed = true
					return false, s.Send(m)
				}
				return false, nil
			}
			r := startRig(t, Config{EPP: epp.address})
			response, body := r.post(strings.NewReader("x"), nil)
			found := r.violations()
			if response == nil || response.StatusCode != test.status || len(found) != 1 || found[0].Rule != test.rule {
				t.Errorf("got %v %s, violations %+v", response, body, found)
			}
		})
	}
}
