package conformance

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

const (
	fds     = "FULL_DUPLEX_STREAMED"
	noBody  = "NONE"
	partial = "BUFFERED_PARTIAL"
	stream  = "STREAMED"
	buffers = "BUFFERED"
)

// at changes the answers to one kind of message.
func at(step string, change func(s *session, out []*answer) []*answer) fault {
	return func(s *session, now string, out []*answer) ([]*answer, error) {
		if now == step {
			return change(s, out), nil
		}
		return out, nil
	}
}

// also adds answers behind those to one kind of message; first adds them before.
func also(step string, more ...*answer) fault {
	return at(step, func(_ *session, out []*answer) []*answer { return append(slices.Clone(out), more...) })
}

func first(step string, more ...*answer) fault {
	return at(step, func(_ *session, out []*answer) []*answer { return append(slices.Clone(more), out...) })
}

func instead(step string, other ...*answer) fault {
	return at(step, func(*session, []*answer) []*answer { return other })
}

// each changes every answer to any message.
func each(change func(s *session, m *answer)) fault {
	return func(s *session, _ string, out []*answer) ([]*answer, error) {
		for _, m := range out {
			change(s, m)
		}
		return out, nil
	}
}

// ends gives the stream up at one kind of message.
func ends(step string, err error) fault {
	return func(_ *session, now string, out []*answer) ([]*answer, error) {
		if now == step {
			return nil, err
		}
		return out, nil
	}
}

// leaves answers one kind of message and ends the stream.
func leaves(step string) fault {
	return func(_ *session, now string, out []*answer) ([]*answer, error) {
		if now == step {
			return out, errLeave
		}
		return out, nil
	}
}

// picks changes every pick.
func picks(change func(s *session, m *answer, common *extprocv3.CommonResponse)) fault {
	return each(func(s *session, m *answer) {
		if m.GetDynamicMetadata() == nil {
			return
		}
		common := m.GetRequestHeaders().GetResponse()
		if common == nil {
			common = m.GetRequestBody().GetResponse()
		}
		change(s, m, common)
	})
}

// streamedOf is the chunk of an answer, nil if it is none.
func streamedOf(m *answer) *extprocv3.StreamedBodyResponse {
	if bodyOf(m) == nil {
		return nil
	}
	return bodyOf(m).GetResponse().GetBodyMutation().GetStreamedResponse()
}

// sets adds changes of headers to every pick.
func sets(pairs ...string) fault {
	return picks(func(_ *session, _ *answer, c *extprocv3.CommonResponse) {
		c.HeaderMutation.SetHeaders = append(c.HeaderMutation.SetHeaders, set(pairs...).SetHeaders...)
	})
}

// to sends every pick to these endpoints.
func to(list string) fault {
	return picks(func(_ *session, m *answer, c *extprocv3.CommonResponse) {
		c.HeaderMutation.SetHeaders[0].Header.RawValue = []byte(list)
		m.DynamicMetadata.Fields[lbNamespace].GetStructValue().Fields[destinationKey] = structpb.NewStringValue(list)
	})
}

// refuses is one refusal in the place of what is answered where it holds.
func refuses(status int, holds func(s *session) bool) fault {
	return func(s *session, _ string, out []*answer) ([]*answer, error) {
		if len(out) > 0 && holds(s) {
			return []*answer{refusal(status)}, nil
		}
		return out, nil
	}
}

type planted struct {
	check  int
	mode   string
	fault  fault
	reason string // what the verdict must hold
}

var requestFaults = map[string]planted{
	"second end": {1, fds, also("qE", chunkAnswer(exchange.Request, nil, true)), "after-end"},
	"no end":     {1, fds, each(func(_ *session, m *answer) { clearEnd(m) }), "no answer within"},
	// What came after the end, or what is missing of the body at it, whichever the check meets first.
	"end on every chunk": {34, fds, each(func(_ *session, m *answer) { setEnd(m) }), "request direction: "},
	"body answer before headers": {1, fds, first("qE", chunkAnswer(exchange.Request, []byte("x"), false)),
		"body-before-headers"},
	"answer on the other direction": {1, fds, first("qE", headersAnswer(exchange.Response, nil)), "wrong-direction"},
	"a byte is lost":                {2, fds, each(func(_ *session, m *answer) { cutByte(m) }), "came back"},
	"bytes are made valid":          {41, fds, each(func(_ *session, m *answer) { makeValid(m) }), "came back"},
	"waits for a last chunk": {3, fds,
		at("qE", ifBody(func(s *session, out []*answer) []*answer { return nil })), "no answer within"},
	"GET is not answered":            {4, fds, silent("qH"), "no answer within"},
	"GET is answered with a body":    {4, fds, also("qH", chunkAnswer(exchange.Request, nil, true)), "body-not-sent"},
	"POST without body: stream ends": {5, fds, ends("qH", errLeave), "the EPP ended the stream"},
	"empty body: gRPC error":         {6, fds, ends("qE", errors.New("boom")), "boom"},
	"trailers are ignored":           {7, fds, silent("qT"), "no answer within"},
	"trailers answer is missing":     {7, buffers, silent("qT"), "no answer within"},
	"end although trailers follow": {7, fds,
		at("qT", func(_ *session, out []*answer) []*answer { setEnd(out[1]); return out }), "end-before-trailers"},
	"empty chunk before trailers": {8, fds, at("qT", func(_ *session, out []*answer) []*answer {
		return slices.Insert(out, 1, chunkAnswer(exchange.Request, nil, false))
	}), "body-before-trailers"},
	"trailers answer unasked": {1, buffers, also("qE", trailersAnswer(exchange.Request)), "trailers-not-sent"},
	"never gives a body up":   {9, fds, silent("timeout"), "the EPP ended the stream"},
	"pick at half-close": {10, fds, instead(".", pickOf(exchange.HeadersAnswer, pool[0])),
		"a pick, although"},
	"error at the end":               {14, fds, ends(".", errors.New("boom")), "boom"},
	"response waits for the request": {20, stream, silent("rH"), "no answer within"},
	"leaves an unfinished request":   {20, stream + "/NONE", leaves("rH"), "the EPP ended the stream"},
	"headers answer to a body alone": {22, "BUFFERED, request headers SKIP",
		first("qE", headersAnswer(exchange.Request, nil)),
		"duplicate-headers"},
	"pick although it is too late": {22, "BUFFERED, request headers SKIP",
		instead("qE", pickOf(exchange.BodyAnswer, pool[0])), "ignored-field"},
	"second pick at a second end": {23, fds, again("qE", pickOf(exchange.HeadersAnswer, pool[0])),
		"duplicate-headers"},
	"second chunk at a second end": {23, fds, again("qE", chunkAnswer(exchange.Request, nil, true)), "after-end"},
	"second pick at second headers": {24, noBody, again("qH", pickOf(exchange.HeadersAnswer, pool[0])),
		"duplicate-headers"},
	"second trailers answer": {25, fds, again("qT", trailersAnswer(exchange.Request)), "trailers-not-sent"},
	"answer to a message of no kind": {26, stream, instead("-", headersAnswer(exchange.Request, nil)),
		"duplicate-headers"},
	"empty answer to an empty one":    {26, fds, instead("-", &answer{}), "unknown-answer"},
	"stream ends at an empty message": {26, fds, ends("-", errLeave), "ended the stream"},
	"HEAD is refused with 500": {67, fds,
		refuses(500, func(s *session) bool { return s.headers[":method"] == "HEAD" }), "500"},
}

var responseFaults = map[string]planted{
	"response end is lost": {16, fds,
		at("rE", func(_ *session, out []*answer) []*answer { clearEnd(out[len(out)-1]); return out }),
		"no answer within"},
	"response is swallowed":       {16, fds, silent("rB"), "came back"},
	"stream ends after the pick":  {16, fds, ends("rH", errLeave), "the EPP ended the stream"},
	"chunk after headers alone":   {17, fds, also("rH", chunkAnswer(exchange.Response, nil, true)), "body-not-sent"},
	"response trailers are lost":  {18, fds, silent("rT"), "no answer within"},
	"silent at unneeded trailers": {18, "NONE, trailers SEND", silent("rT"), "no answer within"},
	"error at unneeded trailers":  {18, "NONE, trailers SEND", ends("rT", io.ErrUnexpectedEOF), "unexpected EOF"},
	"leaves before the headers":   {18, "NONE, trailers SEND", ends("rH", errLeave), "the EPP ended the stream"},
	"empty chunk before trailers": {18, fds, at("rT", func(s *session, out []*answer) []*answer {
		return append([]*answer{chunkAnswer(exchange.Response, nil, false)}, out...)
	}), "body-before-trailers"},
	"503 ends the stream": {19, fds, ends("rH", io.ErrUnexpectedEOF), "unexpected EOF"},
	"response first: gRPC error": {21, fds, func(s *session, step string, out []*answer) ([]*answer, error) {
		if step == "rH" && !s.asked {
			return nil, errors.New("nil request")
		}
		return out, nil
	}, "nil request"},
	"body answer where none is sent": {32, fds + "/NONE",
		also("rH", bodyAnswer(exchange.Response, &extprocv3.CommonResponse{})),
		"body-not-sent"},
	"headers are echoed": {59, fds, instead("rH",
		headersAnswer(exchange.Response, &extprocv3.CommonResponse{HeaderMutation: set("set-cookie", "b=2", "vary",
			"origin")})),
		"set-cookie"},
	"events wait for the end":   {60, fds, held(), "no answer within"},
	"each chunk takes 10 ms":    {60, fds, late("rB", 10*time.Millisecond), "want 5ms at most"},
	"one answer for all chunks": {60, stream, silent("rB"), "no answer within"},
	"large chunks lose a byte": {61, fds, at("rB",
		func(_ *session, out []*answer) []*answer { cutLarge(out[0]); return out }), "came back"},
	"large messages lose a byte": {61, "GRPC",
		at("rB", func(_ *session, out []*answer) []*answer { cutLarge(out[0]); return out }), "came back"},
	"long bodies: gRPC error": {61, buffers, tooLong(), "too long"},
	"a chunk twice": {68, fds, at("rB",
		func(_ *session, out []*answer) []*answer { return append(out, out[len(out)-1]) }), "came back"},
}

var modeFaults = map[string]planted{
	"answers in observability mode": {27, "STREAMED, observed", instead("qH", headersAnswer(exchange.Request, nil)),
		"observed-answer"},
	"headers wait for the body":  {28, buffers, silent("qH"), "no answer within"},
	"headers answer takes 80 ms": {28, buffers, late("qH", 80*time.Millisecond), "want 50ms at most"},
	"pick before the body": {28, buffers, instead("qH", pickOf(exchange.HeadersAnswer, pool[0])),
		"carries a pick"},
	"body comes back streamed": {29, buffers, instead("qE", chunkAnswer(exchange.Request, []byte("{}"), true)),
		"streamed-body"},
	"body comes back whole": {29, buffers,
		picks(func(s *session, _ *answer, c *extprocv3.CommonResponse) { replace(c, s.in.GetRequestBody().GetBody()) }),
		"carries a body"},
	"pick without its metadata": {29, buffers,
		picks(func(_ *session, m *answer, _ *extprocv3.CommonResponse) { m.DynamicMetadata = nil }), "metadata"},
	"one body answer for ten":  {30, stream, silent("qB"), "no answer within"},
	"two body answers for one": {30, stream, also("qE", bodyAnswer(exchange.Request, nil)), "after-end"},
	"chunks are echoed": {30, stream, instead("qB", chunkAnswer(exchange.Request, []byte("x"), false)),
		"streamed-body"},
	"body answer in mode NONE": {31, noBody, also("qH", bodyAnswer(exchange.Request, nil)), "body-not-sent"},
	"messages are joined":      {33, "GRPC", joined(), "message"},
	"flags are lost":           {33, "GRPC", each(func(_ *session, m *answer) { dropFlag(m) }), "flags differ"},
}

var contentFaults = map[string]planted{
	"large chunks": {34, fds, at("qE", func(s *session, out []*answer) []*answer { return oneChunk(s, out) }),
		"chunk-too-large"},
	"413 below the limit": {34, buffers, refuses(413, func(s *session) bool { return len(s.body) > 1<<20-1 }), "413"},
	"content-length is taken for the length": {35, fds, refuses(500, func(s *session) bool {
		return s.headers["content-length"] == "1000000000000" || s.headers["content-length"] != ""
	}), "500"},
	"waits for the end, GRPC": {36, "GRPC", untilEnd(), "pick or refusal"},
	"never without an end":    {36, fds, silent("timeout"), "the EPP ended the stream"},
	"invalid JSON is picked for": {37, fds, func(s *session, step string, out []*answer) ([]*answer, error) {
		if step == "qE" && out[0].GetImmediateResponse() != nil {
			return []*answer{s.pick(exchange.HeadersAnswer), chunkAnswer(exchange.Request, s.body, true)}, nil
		}
		return out, nil
	}, "got none"},
	"refusal is no error object":   {37, fds, each(func(_ *session, m *answer) { plainRefusal(m) }), "no error object"},
	"refusal without content-type": {37, fds, each(func(_ *session, m *answer) { untyped(m) }), "content-type"},
	"part of a body is refused":    {37, partial, instead("qB", refusal(400)), "400"},
	"odd JSON: gRPC error": {38, fds, func(s *session, _ string, out []*answer) ([]*answer, error) {
		if string(s.body) == "null" {
			return nil, errors.New("nil map")
		}
		return out, nil
	}, "nil map"},
	"depth takes its time": {38, fds, at("qE", func(s *session, out []*answer) []*answer {
		if bytes.Contains(s.body, []byte("[[")) && len(s.body) > 100_000 {
			<-time.After(2 * time.Second)
		}
		return out
	}), "depth 100000 in 2"},
	"no model: 500": {39, fds, refuses(500, func(s *session) bool {
		return len(s.body) > 0 &&
			!bytes.Contains(s.body, []byte("model"))
	}), "500"},
	"gzip is refused": {40, fds, refuses(400,
		func(s *session) bool { return s.headers["content-encoding"] == "gzip" }), "gzip"},
	"multipart is refused": {41, fds, refuses(400,
		func(s *session) bool { return strings.HasPrefix(s.headers["content-type"], "multipart/") }), "400"},
	"emoji are refused": {42, fds, refuses(422,
		func(s *session) bool { return bytes.Contains(s.body, []byte("\U0001F6A6")) }), "422"},
	"one path by two sights": {44, fds, alternating(), "then with"},
}

var headerFaults = map[string]planted{
	"request headers are echoed": {43, fds, sets("accept", "text/html"), "line accept"},
	"many headers are refused": {43, fds, refuses(431, func(s *session) bool { return len(s.headers) > 128 }),
		"200 lines"},
	"long headers are refused": {43, fds,
		refuses(431, func(s *session) bool { return len(s.headers["x-long"]) > 48<<10 }), "60 KB"},
	"adds lines beyond the limit": {43, fds, sets("x-a", "", "x-b", "", "x-c", ""), "97 lines"},
	"only raw_value is read":      {45, fds, refuses(400, func(s *session) bool { return s.plain }), "400"},
	"client's destination stays": {46, fds,
		picks(func(s *session, _ *answer, c *extprocv3.CommonResponse) { keepClients(s, c) }), destinationKey},
	"changes :authority":           {58, fds, sets(":authority", "x"), "ignored-header"},
	"sets content-length":          {58, fds, sets("content-length", "10"), "content-length"},
	"sets content-length, no body": {58, noBody, sets("content-length", "10"), "content-length"},
	"sets transfer-encoding":       {58, buffers, sets("transfer-encoding", "chunked"), "transfer-encoding"},
	"sets x-envoy-a":               {58, fds, sets("x-envoy-a", "b"), "x-envoy-a"},
	"removes :path's friend host": {58, fds, picks(func(_ *session, _ *answer, c *extprocv3.CommonResponse) {
		c.HeaderMutation.RemoveHeaders = []string{"host"}
	}), "host"},
	"changes too much": {58, fds, sets("a1", "", "a2", "", "a3", "", "a4", "", "a5", "", "a6", "", "a7", "",
		"a8", "", "a9", "", "b1", ""), "mutations"},
	"uses value": {1, fds, picks(func(_ *session, _ *answer,
		c *extprocv3.CommonResponse) {
		useValue(c)
	}), "value"},
	"newline in a value": {1, fds, sets("a", "b\nc"), "invalid-mutation"},
	"route cache of a response": {16, fds, instead("rH",
		headersAnswer(exchange.Response, &extprocv3.CommonResponse{ClearRouteCache: true})), "ignored-field"},
}

var pickFaults = map[string]planted{
	"subset is not read":       {47, fds, to(pool[0]), "not of the subset"},
	"empty subset: gRPC error": {48, fds, ends("qE", errors.New("unavailable")), "unavailable"},
	"empty subset: anywhere": {48, buffers,
		at("qE", func(*session, []*answer) []*answer { return []*answer{pickOf(exchange.BodyAnswer, pool[0])} }),
		"got none"},
	"empty subset: 500": {48, noBody, each(func(_ *session, m *answer) { restatus(m, 500) }), "500"},
	"strangers are taken": {49, noBody, instead("qH", pickOf(exchange.HeadersAnswer, "192.0.2.1:80")),
		"got none"},
	"junk spoils the subset": {50, noBody, refuses(503, func(s *session) bool { return len(s.limit) > 3 }),
		"503"},
	"no endpoints: gRPC error": {52, fds, ends("qE", errors.New("unavailable")), "unavailable"},
	"no endpoints: 500":        {52, buffers, each(func(_ *session, m *answer) { restatus(m, 500) }), "500"},
	"no room: no retry-after":  {53, fds, each(func(_ *session, m *answer) { untyped(m) }), "no retry-after"},
	"no room: 503":             {53, noBody, each(func(_ *session, m *answer) { restatus(m, 503) }), "503"},
	"subset on the body is missed": {51, buffers,
		at("qE", func(*session, []*answer) []*answer { return []*answer{pickOf(exchange.BodyAnswer, pool[0])} }),
		"not of the subset"},
	"second refusal": {56, fds,
		at("qE", func(_ *session, out []*answer) []*answer { return append(out, refusal(503)) }), "after-immediate"},
	"answer after a refusal":      {56, noBody, also("qH", headersAnswer(exchange.Request, nil)), "after-immediate"},
	"refusal sets content-length": {56, fds, each(func(_ *session, m *answer) { lengthened(m) }), "content-length"},
	"refusal without a status":    {56, fds, each(func(_ *session, m *answer) { restatus(m, 0) }), "got 0"},
	"refusal waits for the end":   {57, fds, silent("qB"), "no answer within"},
	"header and metadata differ":  {1, fds, sets(destinationKey, pool[1]), "metadata"},
	"no metadata": {65, fds,
		picks(func(_ *session, m *answer, _ *extprocv3.CommonResponse) { m.DynamicMetadata = nil }), "metadata"},
	"metadata of another namespace": {65, fds,
		picks(func(_ *session, m *answer, _ *extprocv3.CommonResponse) { elsewhere(m) }), "metadata-namespace"},
	"further key in the metadata": {65, fds,
		picks(func(_ *session, m *answer, _ *extprocv3.CommonResponse) { further(m) }), "2 keys"},
	"metadata twice": {65, fds, at("qE",
		func(_ *session, out []*answer) []*answer { out[1].DynamicMetadata = out[0].DynamicMetadata; return out }),
		"metadata"},
	"destination twice":      {66, fds, to(pool[0] + "," + pool[0]), "stands twice"},
	"too many destinations":  {66, fds, to(strings.Join(pool, ",")), "at most"},
	"IPv6 without brackets":  {66, fds, to("::1:8003"), "brackets"},
	"destination of no pool": {66, fds, to("192.0.2.9:80"), "not of the pool"},
	"empty destination":      {66, fds, to(""), "destination"},
}
