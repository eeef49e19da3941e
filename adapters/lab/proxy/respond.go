package proxy

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"strconv"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

// respond takes the upstream's response past the EPP to the client.
func (t *transaction) respond(response *http.Response, by served) error {
	mode := t.p.config.Response
	t.ways[exchange.Request].body.lift()
	l := t.ways[exchange.Response]
	l.headers = responseHeaders(response)
	noBody := t.r.Method == http.MethodHead || response.Body == http.NoBody || response.ContentLength == 0
	asked := t.stream != nil && !t.direct() && !mode.SkipHeaders
	through := asked && mode.Duplex() && !noBody
	if asked {
		// An error here shows in receive with its reason.
		_ = t.stream.SendHeaders(exchange.Response, l.headers, noBody, t.responseContext(by))
	}
	if through {
		t.readResponse(response, true)
	}
	if asked {
		if err := t.await(exchange.Response); err != nil {
			return err
		}
	}
	t.endEarly()
	if through {
		l.headers.Remove("content-length")
	}
	t.writeHead(l.headers)
	if noBody {
		return nil
	}
	if !through {
		t.readResponse(response, false)
	}
	return t.writeBody(l.body)
}

// endEarly closes the stream as soon as nothing is left for the EPP to do.
func (t *transaction) endEarly() {
	if t.stream == nil || t.direct() || t.p.config.Response.Duplex() || !t.stream.Complete(exchange.Request) {
		return
	}
	t.finished.Store(true)
	t.stream.Close()
}

// responseContext tells the EPP which endpoint answered, in both ways EPPs look for it.
func (t *transaction) responseContext(by served) exchange.Context {
	fields := map[string]*structpb.Value{}
	maps.Copy(fields, t.stream.Metadata(namespaceLB).GetFields())
	fields[destinationServed] = structpb.NewStringValue(by.endpoint)
	c := t.requestContext()
	if c.Metadata == nil {
		c.Metadata = map[string]*structpb.Struct{}
	}
	c.Metadata[namespaceLB] = &structpb.Struct{Fields: fields}
	c.Attributes = map[string]string{"upstream.address": by.address}
	return c
}

// readResponse starts sending the upstream's body on.
func (t *transaction) readResponse(response *http.Response, through bool) {
	t.tasks.Add(1)
	go func() {
		defer t.tasks.Done()
		trailers := func() exchange.Headers { return appendFields(nil, response.Trailer, noField) }
		if err := t.pump(exchange.Response, response.Body, trailers, through); err != nil {
			t.stop(&localReply{status: http.StatusServiceUnavailable, body: "upstream broke off its response: " +
				err.Error(), details: "upstream_reset_after_response_started"})
		}
	}()
}

func (t *transaction) writeHead(headers exchange.Headers) {
	h := t.w.Header()
	h["Content-Type"] = nil // nil keeps the server from guessing one
	for _, f := range headers {
		if f.Name[0] != ':' && !hopByHop(f.Name) {
			h.Add(f.Name, f.Value)
		}
	}
	status, err := strconv.Atoi(headers.Get(":status"))
	if err != nil {
		status = http.StatusBadGateway
	}
	t.wrote = true
	t.w.WriteHeader(status)
}

// writeBody writes chunks as they come and flushes whenever no further one is waiting.
func (t *transaction) writeBody(body *spool) error {
	flusher := http.NewResponseController(t.w)
	if err := flusher.Flush(); err != nil {
		return errGone
	}
	for {
		chunk, more, err := body.reader.take()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return t.failure(err)
		}
		if _, err := t.w.Write(chunk); err != nil {
			return errGone
		}
		if more {
			continue
		}
		if err := flusher.Flush(); err != nil {
			return errGone
		}
	}
	for _, f := range body.trailers {
		t.w.Header().Add(http.TrailerPrefix+f.Name, f.Value)
	}
	return nil
}
