package conformance

import (
	"errors"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

func clearEnd(m *answer) {
	if s := streamedOf(m); s != nil {
		s.EndOfStream = false
	}
}

func setEnd(m *answer) {
	if s := streamedOf(m); s != nil {
		s.EndOfStream = true
	}
}

func cutByte(m *answer) {
	if s := streamedOf(m); s != nil && len(s.Body) > 0 {
		s.Body = s.Body[1:]
	}
}

func cutLarge(m *answer) {
	if len(streamedOf(m).GetBody()) > 10_000 {
		cutByte(m)
	}
}

func makeValid(m *answer) {
	if s := streamedOf(m); s != nil {
		s.Body = []byte(strings.ToValidUTF8(string(s.Body), "?"))
	}
}

func dropFlag(m *answer) {
	if s := streamedOf(m); s != nil {
		s.GrpcMessageCompressed = false
	}
}

// ifBody changes answers to an empty body message behind one that was not.
func ifBody(change func(*session, []*answer) []*answer) func(*session, []*answer) []*answer {
	return func(s *session, out []*answer) []*answer {
		if len(s.in.GetRequestBody().GetBody()) == 0 && len(s.body) > 0 {
			return change(s, out)
		}
		return out
	}
}

func silent(step string) fault { return instead(step) }

// untilEnd answers nothing before the request's end.
func untilEnd() fault {
	return func(s *session, step string, out []*answer) ([]*answer, error) {
		if s.kept = append(s.kept, out...); step != "qE" {
			return nil, nil
		}
		return s.kept, nil
	}
}

// tooLong is an error at a response in one message.
func tooLong() fault {
	return func(s *session, step string, out []*answer) ([]*answer, error) {
		if step == "rE" && len(s.in.GetResponseBody().GetBody()) > 64<<10 {
			return nil, errors.New("too long")
		}
		return out, nil
	}
}

// late answers after a time.
func late(step string, by time.Duration) fault {
	return at(step, func(_ *session, out []*answer) []*answer {
		<-time.After(by)
		return out
	})
}

// again answers a kind of message that comes a second time.
func again(step string, with *answer) fault {
	return at(step, func(s *session, out []*answer) []*answer {
		if s.steps++; s.steps == 1 {
			return out
		}
		return []*answer{with}
	})
}

// held gives a response back only at its end.
func held() fault {
	return func(s *session, step string, out []*answer) ([]*answer, error) {
		switch step {
		case "rB":
			s.parts = append(s.parts, s.in.GetResponseBody().GetBody())
			return nil, nil
		case "rE":
			for _, p := range s.parts {
				out = append([]*answer{chunkAnswer(exchange.Response, p, false)}, out...)
			}
		}
		return out, nil
	}
}

// joined gives two messages back as one.
func joined() fault {
	return func(s *session, step string, out []*answer) ([]*answer, error) {
		if step == "qB" && s.parts == nil {
			s.parts = [][]byte{s.in.GetRequestBody().GetBody()}
			return nil, nil
		}
		if step == "qB" && len(s.parts) == 1 {
			first := append([]byte("+"), s.parts[0]...)
			s.parts = append(s.parts, nil)
			return append([]*answer{chunkAnswer(exchange.Request, first, false)}, out...), nil
		}
		return out, nil
	}
}

// replace puts a body in the place of the one that was sent.
func replace(c *extprocv3.CommonResponse, body []byte) {
	c.BodyMutation = &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_Body{Body: body}}
}

// oneChunk gives a body back in one piece.
func oneChunk(s *session, out []*answer) []*answer {
	if out[0].GetImmediateResponse() != nil {
		return out
	}
	return []*answer{out[0], chunkAnswer(exchange.Request, s.body, true)}
}

func plainRefusal(m *answer) {
	if r := m.GetImmediateResponse(); r != nil {
		r.Body = []byte("no")
	}
}

func untyped(m *answer) {
	if r := m.GetImmediateResponse(); r != nil {
		r.Headers = nil
	}
}

func lengthened(m *answer) {
	if r := m.GetImmediateResponse(); r != nil {
		r.Headers = set("Content-Length", "2")
	}
}

func restatus(m *answer, status int) {
	if r := m.GetImmediateResponse(); r != nil {
		r.Status = &typev3.HttpStatus{Code: typev3.StatusCode(status)}
	}
}

// alternating refuses every second request.
func alternating() fault {
	n := 0
	return func(s *session, step string, out []*answer) ([]*answer, error) {
		if step == "qH" {
			n++
		}
		if n%2 == 0 && len(out) > 0 {
			return []*answer{refusal(404)}, nil
		}
		return out, nil
	}
}

func keepClients(s *session, c *extprocv3.CommonResponse) {
	if s.headers[destinationKey] != "" {
		c.HeaderMutation = &extprocv3.HeaderMutation{}
	}
}

func useValue(c *extprocv3.CommonResponse) {
	h := c.HeaderMutation.SetHeaders[0].Header
	c.HeaderMutation.SetHeaders[0] = &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: h.Key,
		Value: string(h.RawValue)}}
}

func elsewhere(m *answer) {
	m.DynamicMetadata.Fields["other"] = m.DynamicMetadata.Fields[lbNamespace]
}

func further(m *answer) {
	m.DynamicMetadata.Fields[lbNamespace].GetStructValue().Fields["score"] = structpb.NewNumberValue(1)
}
