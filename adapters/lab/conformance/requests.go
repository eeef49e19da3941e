package conformance

import (
	"bytes"
	"errors"
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

// requestChecks are about the request: how it ends, and what a proxy may send besides.
var requestChecks = []Check{
	{
		Number: 1, Name: "chat request", in: headed,
		Sends: "headers, one body message with the end", Wants: "a pick, the body byte for byte, one end",
		run: func(t *checkRun) error { return t.pick(t.chat()) },
	},
	{
		Number: 2, Name: "20 chunks, split anywhere", in: bodied,
		Sends: "headers, 20 chunks split inside UTF-8 and escapes", Wants: "as 1",
		run: func(t *checkRun) error {
			m := post(chatPath, pieces(t.prompt("naïve 日本語 🚦 \"quoted\" \\ \u2028 and \n"), 20)...)
			m.cut = len(m.body()) / 2
			return t.pick(m)
		},
	},
	{
		Number: 3, Name: "empty last chunk", in: bodied,
		Sends: "headers, the body, an empty message with the end", Wants: "as 1",
		run: func(t *checkRun) error { return t.pick(post(chatPath, t.prompt("Say hello."), "")) },
	},
	{
		Number: 4, Name: "GET /v1/models", in: headed,
		Sends: "headers with the end", Wants: "one answer: a pick, or an immediate response 200; no body message",
		run: func(t *checkRun) error { return t.pickOr(bare("GET", "/v1/models"), 200) },
	},
	{
		Number: 5, Name: "POST without a body", in: headed,
		Sends: "headers with the end", Wants: "a pick, or 400; never silence",
		run: func(t *checkRun) error { return t.pickOr(bare("POST", chatPath), 400) },
	},
	{
		Number: 6, Name: "empty body", in: bodied,
		Sends: "headers, an empty body message with the end", Wants: "a pick, or 400; never silence",
		run: func(t *checkRun) error { return t.pickOr(post(chatPath, ""), 400) },
	},
	{
		Number: 7, Name: "body and trailers", in: headed,
		Sends: "headers, body without the end, trailers", Wants: "a pick, no end on any chunk, one trailers answer",
		run: func(t *checkRun) error { return t.pick(t.chat().ending(checksum)) },
	},
	{
		Number: 8, Name: "trailers without a body", in: both(headed, requestTrailers),
		Sends: "headers, trailers",
		Wants: "a pick, one trailers answer, no body message; a refusal where no message is left for a pick",
		run: func(t *checkRun) error {
			if t.modes.Request.Buffers() {
				return t.pickOr(bare("POST", chatPath).ending(checksum))
			}
			return t.pick(bare("POST", chatPath).ending(checksum))
		},
	},
	{
		Number: 20, Name: "response before the request's end", in: request(exchange.Mode{Body: exchange.Streamed},
			exchange.Mode{Body: exchange.GRPC}),
		Sends: "headers, part of the body, the whole response, the rest of the body",
		Wants: "each direction served by itself",
		run:   earlyResponse,
	},
	{
		Number: 22, Name: "no request headers", in: func(m Modes) bool {
			return m.Request.SkipHeaders &&
				m.Request.Body != exchange.None && !m.Observe
		},
		Sends: "body messages first",
		Wants: "the direction's answers without a pick, which would come too late; or a refusal",
		run: func(t *checkRun) error {
			c, err := t.start(t.chat())
			switch {
			case err != nil:
				return err
			case c.refused():
				return c.turnedAway()
			}
			return errors.Join(c.intact(exchange.Request), c.finish())
		},
	},
	{
		Number: 23, Name: "second end", in: func(m Modes) bool {
			return bodied(m) &&
				m.Request.Body != exchange.Streamed
		},
		Sends: "a whole request, then another body message with the end",
		Wants: "nothing more: no second pick, no second end",
		run: func(t *checkRun) error {
			return t.twice(t.chat(), &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
				RequestBody: &extprocv3.HttpBody{Body: []byte(t.prompt("Again.")), EndOfStream: true},
			}})
		},
	},
	{
		Number: 24, Name: "headers twice", in: headed,
		Sends: "headers, headers, the body", Wants: "an error, or the second headers ignored; never two picks",
		run: headersTwice,
	},
	{
		Number: 25, Name: "trailers twice", in: both(headed, requestTrailers),
		Sends: "headers, body, trailers, trailers", Wants: "one trailers answer",
		run: func(t *checkRun) error {
			return t.twice(t.chat().ending(checksum),
				&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestTrailers{
					RequestTrailers: &extprocv3.HttpTrailers{},
				}})
		},
	},
	{
		Number: 26, Name: "messages without a request", in: headed,
		Sends: "headers, a message with metadata alone, a window update, the body",
		Wants: "no answer to either; the rest as 1",
		run: func(t *checkRun) error {
			return t.amid(t.chat(),
				&extprocv3.ProcessingRequest{MetadataContext: &corev3.Metadata{}},
				&extprocv3.ProcessingRequest{ClientWindowUpdate: &extprocv3.ProcessingRequest_ClientWindowUpdate{}})
		},
	},
	{
		Number: 33, Name: "gRPC messages", in: request(exchange.Mode{Body: exchange.GRPC}),
		Sends: "messages of 0 bytes to 200 KB, compressed ones, an end without a message",
		Wants: "each message whole, with its flags; or a clear refusal",
		run:   grpcMessages,
	},
	{
		Number: 67, Name: "HEAD, OPTIONS, DELETE", in: headed,
		Sends: "each method, DELETE with a body", Wants: "an answer to each",
		run: func(t *checkRun) error {
			remove := post("/v1/files/1", "{}")
			remove.headers[0].Value = "DELETE"
			for _, m := range []message{bare("HEAD", "/v1/models"), bare("OPTIONS", chatPath), bare("OPTIONS", "*"),
				remove} {
				if err := t.pickOr(m, 200, 204, 400, 404, 405); err != nil {
					return fmt.Errorf("%s: %w", m.headers.Get(":method"), err)
				}
			}
			return nil
		},
	},
}

// twice plays a request, then sends a message that no proxy should, which must change nothing.
func (t *checkRun) twice(m message, again *extprocv3.ProcessingRequest) error {
	c, err := t.start(m)
	if err != nil {
		return err
	}
	if _, err := c.destinations(); err != nil {
		return err
	}
	if done, err := c.sent(c.stream.SendMessage(again)); done {
		return err
	}
	return c.served()
}

// amid plays a request with further messages between its headers and its body.
func (t *checkRun) amid(m message, further ...*extprocv3.ProcessingRequest) error {
	c, err := t.open(t.ctx)
	if err != nil {
		return err
	}
	if err := c.head(exchange.Request, m); err != nil || c.refused() {
		return errors.Join(err, c.clean())
	}
	for _, f := range further {
		if done, err := c.sent(c.stream.SendMessage(f)); done {
			return err
		}
	}
	if done, err := c.sent(c.sendBody(exchange.Request, c.modes.Request, m)); done {
		return err
	}
	if err := c.settle(exchange.Request); err != nil {
		return err
	}
	return c.served()
}

func headersTwice(t *checkRun) error {
	lines := &corev3.HeaderMap{}
	for _, f := range t.chat().headers {
		lines.Headers = append(lines.Headers, &corev3.HeaderValue{Key: f.Name, RawValue: []byte(f.Value)})
	}
	err := t.amid(t.chat(), &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{
		RequestHeaders: &extprocv3.HttpHeaders{Headers: lines},
	}})
	c := t.calls[len(t.calls)-1]
	if broken := c.clean(); broken != nil || err == nil {
		return broken
	}
	select {
	case <-c.over:
		return nil // it gave the stream up, which is an answer too
	default:
	}
	return err
}

// earlyResponse is an upstream that answers before it has the whole request.
func earlyResponse(t *checkRun) error {
	c, err := t.open(t.ctx)
	if err != nil {
		return err
	}
	m := post(chatPath, t.prompt("A request that goes on."), " ")
	if err := c.head(exchange.Request, m); err != nil {
		return err
	}
	if err := c.await("headers answer", c.headersIn(exchange.Request)); err != nil {
		return err
	}
	if _, err := c.destinations(); err != nil {
		return err
	}
	if err := c.chunk(exchange.Request, m.chunks[0], false); err != nil {
		return err
	}
	if err := c.play(exchange.Response, completion()); err != nil {
		return err
	}
	if err := c.answeredWell(); err != nil {
		return err
	}
	if done, err := c.sent(c.chunk(exchange.Request, m.chunks[1], true)); done {
		return err
	}
	if err := c.settle(exchange.Request); err != nil {
		return err
	}
	return c.served()
}

// pieces cuts a text into n pieces of about one size, anywhere.
func pieces(text string, n int) []string {
	var out []string
	for i := range n {
		out = append(out, text[len(text)*i/n:len(text)*(i+1)/n])
	}
	return out
}

// grpcMessages compares message by message what came back.
func grpcMessages(t *checkRun) error {
	c, err := t.open(t.ctx)
	if err != nil {
		return err
	}
	m := bare("POST", "/inference.Service/Generate").with("content-type", "application/grpc")
	m.chunks = []string{}
	if err := c.head(exchange.Request, m); err != nil {
		return err
	}
	sent := []*extprocv3.HttpBody{
		{Body: []byte("one")}, {}, {Body: bytes.Repeat([]byte("x"), 200_000)},
		{Body: []byte("small"), GrpcMessageCompressed: true},
		{EndOfStream: true, EndOfStreamWithoutMessage: true},
	}
	for _, b := range sent {
		if done, err := c.sent(c.stream.SendHTTPBody(exchange.Request, b)); done {
			return err
		}
	}
	if err := c.settle(exchange.Request); err != nil {
		return err
	}
	if c.refused() {
		return c.turnedAway()
	}
	var got []*extprocv3.StreamedBodyResponse
	for _, a := range c.answers {
		if a.Kind == exchange.BodyAnswer {
			got = append(got, a.Message.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse())
		}
	}
	for i, b := range sent {
		switch {
		case i >= len(got):
			return fmt.Errorf("%d messages came back, want %d", len(got), len(sent))
		case !bytes.Equal(got[i].GetBody(), b.GetBody()):
			return fmt.Errorf("message %d: %d bytes were sent, %d came back", i, len(b.GetBody()),
				len(got[i].GetBody()))
		case got[i].GetEndOfStream() != b.GetEndOfStream() ||
			got[i].GetEndOfStreamWithoutMessage() != b.GetEndOfStreamWithoutMessage() ||
			got[i].GetGrpcMessageCompressed() != b.GetGrpcMessageCompressed():
			return fmt.Errorf("message %d: flags differ", i)
		}
	}
	if _, err := c.destinations(); err != nil {
		return err
	}
	return c.finish()
}
