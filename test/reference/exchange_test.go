package reference

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

// Names of the protocol.
const (
	lbNamespace     = "envoy.lb"
	subsetNamespace = "envoy.lb.subset_hint"
	subsetKey       = "x-gateway-destination-endpoint-subset"
	destinationKey  = "x-gateway-destination-endpoint"
	scoresKey       = "x-gateway-destination-endpoint-scores"
	reasonKey       = "x-llm-d-request-dropped-reason"
	completions     = "/v1/completions"
)

// request is what a client sends. Without chunks it has no body.
type request struct {
	headers []string // "name: value"
	chunks  []string
	subset  []string // nil = no hint
}

// stream is one exchange in the modes that the endpoint picker protocol asks for. Each answer must come within 10 s,
// and break no rule.
type stream struct {
	t       *testing.T
	picker  *picker
	on      *exchange.Stream
	answers chan exchange.Answer // closed when the picker has ended the stream
}

func (p *picker) open(t *testing.T) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &stream{t: t, picker: p, answers: make(chan exchange.Answer, 100)}
	on, err := exchange.Open(ctx, p.client, exchange.Config{
		Request: exchange.FullDuplex(), Response: exchange.FullDuplex(),
		OnViolation: func(v exchange.Violation) { t.Errorf("the picker broke a rule: %v", &v) },
	})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	s.on = on
	go func() {
		defer close(s.answers)
		for {
			a, err := on.Recv()
			if err != nil {
				return // the stream is over
			}
			s.answers <- a
		}
	}()
	t.Cleanup(func() {
		on.Close()
		cancel()
		for range s.answers { // until the receiver has ended
		}
	})
	return s
}

// next returns the next answer.
func (s *stream) next(what string) exchange.Answer {
	s.t.Helper()
	select {
	case a, ok := <-s.answers:
		if !ok {
			s.t.Fatalf("%s: the stream ended\n%s", what, s.picker.log.text())
		}
		return a
	case <-time.After(10 * time.Second):
		s.t.Fatalf("%s: no answer within 10 s\n%s", what, s.picker.log.text())
	}
	return exchange.Answer{}
}

// silent fails if an answer comes within that time.
func (s *stream) silent(within time.Duration) {
	s.t.Helper()
	select {
	case a := <-s.answers:
		s.t.Fatalf("got %v, want nothing for %v", a.Message, within)
	case <-time.After(within):
	}
}

// fields are headers as a proxy has them, the pseudo headers of a POST first if there are none.
func fields(lines []string) exchange.Headers {
	var h exchange.Headers
	if !slices.ContainsFunc(lines, func(l string) bool { return l[0] == ':' }) {
		h = exchange.Headers{{Name: ":method", Value: "POST"}, {Name: ":path", Value: completions},
			{Name: ":authority", Value: "models"}, {Name: "content-type", Value: "application/json"}}
	}
	for _, l := range lines {
		at := strings.Index(l[1:], ": ") + 1
		h.Add(l[:at], l[at+2:])
	}
	return h
}

// outcome is what became of a request.
type outcome struct {
	sent    exchange.Headers // as the model server gets them
	picked  string           // the destination in the header
	told    string           // the destination in the metadata
	body    string
	chunks  int    // that the body came back in
	late    bool   // metadata came with the body too
	status  int    // of a refusal
	grpc    string // its grpc-status
	reason  string
	refused string // its body
}

// within is the hint of a subset of endpoints.
func within(addresses ...string) exchange.Context {
	list := &structpb.ListValue{}
	for _, address := range addresses {
		list.Values = append(list.Values, structpb.NewStringValue(address))
	}
	return exchange.Context{Metadata: map[string]*structpb.Struct{subsetNamespace: {
		Fields: map[string]*structpb.Value{subsetKey: structpb.NewListValue(list)},
	}}}
}

// send sends a request, without waiting for an answer.
func (s *stream) send(r request) {
	s.t.Helper()
	about := exchange.Context{}
	if r.subset != nil {
		about = within(r.subset...)
	}
	s.must(s.on.SendHeaders(exchange.Request, fields(r.headers), len(r.chunks) == 0, about))
	for i, chunk := range r.chunks {
		s.must(s.on.SendBody(exchange.Request, []byte(chunk), i == len(r.chunks)-1))
	}
}

func (s *stream) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// ask sends a request, and returns what becomes of it.
func (s *stream) ask(r request) outcome {
	s.t.Helper()
	s.send(r)
	return s.outcome(r)
}

// outcome returns what becomes of a request that was sent.
func (s *stream) outcome(r request) outcome {
	s.t.Helper()
	o := outcome{sent: fields(r.headers)}
	a := s.next("the request's headers")
	if a.Kind == exchange.ImmediateAnswer {
		return refusalOf(a.Immediate)
	}
	if a.Kind != exchange.HeadersAnswer || a.Direction != exchange.Request {
		s.t.Fatalf("got %v, want an answer to the request's headers", a.Message)
	}
	if !a.Message.GetRequestHeaders().GetResponse().GetClearRouteCache() {
		s.t.Error("the route is not cleared")
	}
	s.must(s.on.Apply(exchange.Request, &o.sent, a.Mutation))
	o.picked = o.sent.Get(destinationKey)
	o.told = s.on.Metadata(lbNamespace).GetFields()[destinationKey].GetStringValue()
	if o.picked == "" || o.told != o.picked {
		s.t.Errorf("picked %q by header, %q by metadata", o.picked, o.told)
	}
	for ended := a.Ended || len(r.chunks) == 0; !ended; {
		a = s.next("the request's body")
		if a.Kind != exchange.BodyAnswer || a.Direction != exchange.Request {
			s.t.Fatalf("got %v, want an answer to the request's body", a.Message)
		}
		o.body, ended = o.body+string(a.Chunk), a.Ended
		o.chunks, o.late = o.chunks+1, o.late || a.Message.GetDynamicMetadata() != nil
	}
	return o
}

func refusalOf(r *extprocv3.ImmediateResponse) outcome {
	o := outcome{status: int(r.GetStatus().GetCode()), refused: string(r.GetBody())}
	for _, h := range r.GetHeaders().GetSetHeaders() {
		switch h.GetHeader().GetKey() {
		case reasonKey:
			o.reason = string(h.GetHeader().GetRawValue())
		case "grpc-status":
			o.grpc = string(h.GetHeader().GetRawValue())
		}
	}
	return o
}

// reply is what a model server answers.
type reply struct {
	headers  []string // without ":status", it is 200
	chunks   []string
	trailers []string // nil = none
}

// replied is what the client gets of it.
type replied struct {
	headers exchange.Headers
	chunks  []string                 // each with " END" if it was the last of the direction
	told    map[int]*structpb.Struct // metadata that came with one of chunks
}

// served names the endpoint that served, as the load balancer does.
func served(by string) exchange.Context {
	return exchange.Context{Metadata: map[string]*structpb.Struct{lbNamespace: {
		Fields: map[string]*structpb.Value{destinationKey + "-served": structpb.NewStringValue(by)},
	}}}
}

// answer plays the response of the endpoint at that address.
func (s *stream) answer(by string, r reply) replied {
	s.t.Helper()
	lines := r.headers
	if len(lines) == 0 || lines[0][0] != ':' {
		lines = append([]string{":status: 200"}, lines...)
	}
	got := replied{headers: fields(lines), told: map[int]*structpb.Struct{}}
	s.must(s.on.SendHeaders(exchange.Response, got.headers, false, served(by)))
	a := s.next("the response's headers")
	s.must(s.on.Apply(exchange.Response, &got.headers, a.Mutation))
	for i, chunk := range r.chunks {
		s.must(s.on.SendBody(exchange.Response, []byte(chunk), r.trailers == nil && i == len(r.chunks)-1))
	}
	if r.trailers != nil {
		s.must(s.on.SendTrailers(exchange.Response, fields(append([]string{":status: 200"}, r.trailers...))[1:]))
	}
	for ended := false; !ended; {
		a = s.next("the response's body")
		if told := a.Message.GetDynamicMetadata(); told != nil {
			got.told[len(got.chunks)] = told
		}
		switch a.Kind {
		case exchange.BodyAnswer:
			mark := ""
			if ended = a.Ended; ended {
				mark = " END"
			}
			got.chunks = append(got.chunks, string(bytes.Clone(a.Chunk))+mark)
		case exchange.TrailersAnswer:
			got.chunks, ended = append(got.chunks, "TRAILERS"), true
		case exchange.HeadersAnswer, exchange.ImmediateAnswer, exchange.Nothing:
			s.t.Fatalf("got %v, want the response's body", a.Message)
		}
	}
	return got
}

// done plays an answer of a few tokens.
func (s *stream) done(by string) replied {
	s.t.Helper()
	return s.answer(by, reply{headers: []string{"content-type: application/json"},
		chunks: []string{`{"usage":{"prompt_tokens":7,"total_tokens":17,"completion_tokens":10}}`}})
}
