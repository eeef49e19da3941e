package exchange

import (
	"io"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// attributesKey is the key Envoy's filter files its attributes under.
const attributesKey = "envoy.filters.http.ext_proc"

// Context goes with the messages of a direction: metadata with each, attributes with the first.
type Context struct {
	Metadata   map[string]*structpb.Struct // by namespace
	Attributes map[string]string           // such as upstream.address
}

func (c Context) metadata() *corev3.Metadata {
	if len(c.Metadata) == 0 {
		return nil
	}
	return &corev3.Metadata{FilterMetadata: c.Metadata}
}

func (c Context) attributes() map[string]*structpb.Struct {
	if len(c.Attributes) == 0 {
		return nil
	}
	fields := make(map[string]*structpb.Value, len(c.Attributes))
	for name, value := range c.Attributes {
		fields[name] = structpb.NewStringValue(value)
	}
	return map[string]*structpb.Struct{attributesKey: {Fields: fields}}
}

// SendHeaders sends the headers of a direction; end means that neither body nor trailers follow.
func (s *Stream) SendHeaders(id Direction, headers Headers, end bool, c Context) error {
	h := &extprocv3.HttpHeaders{Headers: headers.proto(s.config.PlainValues), EndOfStream: end}
	m := &extprocv3.ProcessingRequest{Attributes: c.attributes()}
	if id == Request {
		m.Request = &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: h}
	} else {
		m.Request = &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: h}
	}
	s.SetContext(id, c)
	return s.send(id, m, func(d *directionState) {
		d.hasLength = headers.has("content-length")
		d.sentHeaders(end)
	})
}

// SetContext changes the metadata that goes with the further messages of a direction.
func (s *Stream) SetContext(id Direction, c Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.context[id] = c
}

// SendBody sends a chunk, which may be empty, and which must not be changed before it returns.
func (s *Stream) SendBody(id Direction, chunk []byte, end bool) error {
	return s.SendHTTPBody(id, &extprocv3.HttpBody{Body: chunk, EndOfStream: end})
}

// SendHTTPBody sends a body message with the flags that only gRPC messages have.
func (s *Stream) SendHTTPBody(id Direction, b *extprocv3.HttpBody) error {
	m := &extprocv3.ProcessingRequest{}
	if id == Request {
		m.Request = &extprocv3.ProcessingRequest_RequestBody{RequestBody: b}
	} else {
		m.Request = &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: b}
	}
	return s.send(id, m, func(d *directionState) { d.sentBody(b.GetEndOfStream()) })
}

// SendTrailers sends the trailers of a direction, its last message.
func (s *Stream) SendTrailers(id Direction, trailers Headers) error {
	t := &extprocv3.HttpTrailers{Trailers: trailers.proto(s.config.PlainValues)}
	m := &extprocv3.ProcessingRequest{}
	if id == Request {
		m.Request = &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: t}
	} else {
		m.Request = &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: t}
	}
	return s.send(id, m, (*directionState).sentTrailers)
}

// SendMessage sends a message as it is, without touching the directions: for messages that no HTTP exchange makes.
func (s *Stream) SendMessage(m *extprocv3.ProcessingRequest) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.first = false
	return s.client.Send(m)
}

// send notes the message in its direction before it goes out, so that no answer can overtake the note.
func (s *Stream) send(id Direction, m *extprocv3.ProcessingRequest, note func(*directionState)) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return io.EOF
	}
	before := s.directions[id]
	note(&s.directions[id])
	m.MetadataContext = s.context[id].metadata()
	s.mu.Unlock()
	s.mark(m)
	err := s.client.Send(m)
	if err != nil {
		s.takeBack(id, before)
	}
	return err
}

// mark puts onto a message what the filter's configuration says: the modes on the first, observability on each.
func (s *Stream) mark(m *extprocv3.ProcessingRequest) {
	m.ObservabilityMode = s.config.Observe
	if s.first && !s.config.Observe {
		m.ProtocolConfig = &extprocv3.ProtocolConfiguration{
			RequestBodyMode:                         s.config.Request.Body,
			ResponseBodyMode:                        s.config.Response.Body,
			SendBodyWithoutWaitingForHeaderResponse: s.config.WithoutWaiting,
		}
	}
	s.first = false
}

// takeBack forgets a message that the ended stream did not take: its bytes are still with the caller.
func (s *Stream) takeBack(id Direction, before directionState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := &s.directions[id]
	d.bodySent, d.trailersSent, d.inputEnded, d.owed = before.bodySent, before.trailersSent, before.inputEnded,
		before.owed
}
