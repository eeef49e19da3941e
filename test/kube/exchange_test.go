package kube

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

const destinationKey = "x-gateway-destination-endpoint"

// asked is a request, and what its server answers.
type asked struct {
	headers []string // "name: value"; without those of HTTP/2 they are a POST of JSON to /v1/completions, or a GET
	body    []string // pieces; nil = it has none
	subset  []string // addresses that the proxy names; nil = it names none
	answer  []string // pieces of the response's body; nil = it has none
	kind    string   // content type of the response; "" = it has none
	status  string   // grpc-status in trailers of the response; "" = it has no trailers
}

// answered is what the picker said to a request and to its response.
type answered struct {
	picked  string           // destinations, the first one first
	sent    exchange.Headers // of the request, as its server gets them
	body    string           // likewise
	refused string           // status, grpc-status and reason of a refusal, as far as it has them; "" = it was picked
	got     exchange.Headers // of the response, as the client gets them
	answer  []string         // pieces of the response's body, the last with " END", or "TRAILERS" behind it
}

// conversation is a stream with a picker, to which every answer comes within patience, and breaks no rule of ext_proc.
type conversation struct {
	*picker
	on *exchange.Stream
}

// exchange has a request picked, and its response served by the first destination.
func (p *picker) exchange(q asked) (a answered) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	on, err := exchange.Open(ctx, extprocv3.NewExternalProcessorClient(p.grpc), exchange.Config{
		Request: exchange.FullDuplex(), Response: exchange.FullDuplex(),
		OnViolation: func(v exchange.Violation) { p.t.Errorf("the picker broke a rule: %v", &v) },
	})
	if err != nil {
		p.t.Fatal(err)
	}
	defer on.Close()
	c := conversation{p, on}
	c.request(q, &a)
	if a.refused == "" {
		c.response(q, &a)
	}
	return a
}

func (c conversation) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatalf("%v\n%s", err, c.log)
	}
}

func (c conversation) next() exchange.Answer {
	c.t.Helper()
	answer, err := c.on.Recv()
	c.must(err)
	return answer
}

func (c conversation) request(q asked, a *answered) {
	c.t.Helper()
	about := exchange.Context{}
	if q.subset != nil {
		list := &structpb.ListValue{}
		for _, host := range q.subset {
			list.Values = append(list.Values, structpb.NewStringValue(host))
		}
		about = told("envoy.lb.subset_hint", destinationKey+"-subset", structpb.NewListValue(list))
	}
	a.sent = q.fields()
	c.must(c.on.SendHeaders(exchange.Request, a.sent, q.body == nil, about))
	for i, piece := range q.body {
		c.must(c.on.SendBody(exchange.Request, []byte(piece), i == len(q.body)-1))
	}
	first := c.next()
	if first.Kind == exchange.ImmediateAnswer {
		a.refused = refusal(first.Immediate)
		return
	}
	c.must(c.on.Apply(exchange.Request, &a.sent, first.Mutation))
	a.picked = a.sent.Get(destinationKey)
	if said := c.on.Metadata("envoy.lb").GetFields()[destinationKey].GetStringValue(); said != a.picked {
		c.t.Errorf("picked %q by header, %q by metadata", a.picked, said)
	}
	for ended := first.Ended || q.body == nil; !ended; {
		piece := c.next()
		if piece.Kind != exchange.BodyAnswer {
			c.t.Fatalf("got %v, want an answer to the request's body", piece.Message)
		}
		a.body, ended = a.body+string(piece.Chunk), piece.Ended
	}
}

func (c conversation) response(q asked, a *answered) {
	c.t.Helper()
	a.got = exchange.Headers{{Name: ":status", Value: "200"}}
	if q.kind != "" {
		a.got.Add("content-type", q.kind)
	}
	by, _, _ := strings.Cut(a.picked, ",")
	c.must(c.on.SendHeaders(exchange.Response, a.got, q.answer == nil && q.status == "",
		told("envoy.lb", destinationKey+"-served", structpb.NewStringValue(by))))
	c.must(c.on.Apply(exchange.Response, &a.got, c.next().Mutation))
	for i, piece := range q.answer {
		c.must(c.on.SendBody(exchange.Response, []byte(piece), q.status == "" && i == len(q.answer)-1))
	}
	if q.status != "" {
		c.must(c.on.SendTrailers(exchange.Response, exchange.Headers{{Name: "grpc-status", Value: q.status}}))
	}
	for ended := q.answer == nil && q.status == ""; !ended; {
		piece := c.next()
		switch piece.Kind {
		case exchange.BodyAnswer:
			text := string(bytes.Clone(piece.Chunk))
			if ended = piece.Ended; ended {
				text += " END"
			}
			a.answer = append(a.answer, text)
		case exchange.TrailersAnswer:
			a.answer, ended = append(a.answer, "TRAILERS"), true
		case exchange.HeadersAnswer, exchange.ImmediateAnswer, exchange.Nothing:
			c.t.Fatalf("got %v, want the response's body", piece.Message)
		}
	}
}

// fields are the headers of a request as a proxy has them.
func (q *asked) fields() (all exchange.Headers) {
	if !slices.ContainsFunc(q.headers, func(h string) bool { return h[0] == ':' }) {
		method := "POST"
		if q.body == nil {
			method = "GET"
		}
		all = exchange.Headers{{Name: ":method", Value: method}, {Name: ":path", Value: "/v1/completions"},
			{Name: ":authority", Value: "models"}, {Name: "content-type", Value: "application/json"}}
	}
	for _, h := range q.headers {
		at := strings.Index(h[1:], ": ") + 1
		all.Add(h[:at], h[at+2:])
	}
	return all
}

// told is one value of dynamic metadata.
func told(namespace, key string, value *structpb.Value) exchange.Context {
	return exchange.Context{Metadata: map[string]*structpb.Struct{
		namespace: {Fields: map[string]*structpb.Value{key: value}},
	}}
}

func refusal(r *extprocv3.ImmediateResponse) string {
	said := map[string]string{}
	for _, h := range r.GetHeaders().GetSetHeaders() {
		said[h.GetHeader().GetKey()] = string(h.GetHeader().GetRawValue())
	}
	return strings.Join(strings.Fields(fmt.Sprint(int(r.GetStatus().GetCode()), " ", said["grpc-status"], " ",
		said["x-llm-d-request-dropped-reason"])), " ")
}

// sum returns the sum of the series of a metric that have all of these labels, each as name="value".
func (p *picker) sum(name string, labels ...string) (sum float64) {
	p.t.Helper()
	for line := range strings.Lines(p.page("/metrics")) {
		series, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "} ")
		rest, ok := strings.CutPrefix(series, name+"{")
		for _, l := range labels {
			ok = ok && strings.Contains(rest, l)
		}
		if !ok {
			continue
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			p.t.Fatalf("%s: %v", line, err)
		}
		sum += number
	}
	return sum
}

// requestCounts waits until a request with these labels is counted for the first time.
func (p *picker) requestCounts(labels []string) {
	p.t.Helper()
	eventuallyWithin(p.t, patience, "a request counts with "+strings.Join(labels, ","), func() bool {
		<-time.After(10 * time.Millisecond)
		return p.sum("llm_d_epp_request_total", labels...) == 1
	})
}
