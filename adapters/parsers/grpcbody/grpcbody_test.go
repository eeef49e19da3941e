package grpcbody_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/signalbox-epp/signalbox/adapters/parsers/grpcbody"
	"github.com/signalbox-epp/signalbox/messages"
)

func TestMessage(t *testing.T) {
	for name, c := range map[string]struct {
		body, want, err string
	}{
		"whole":            {body: "\x00\x00\x00\x00\x02ab", want: "ab"},
		"the first counts": {body: "\x00\x00\x00\x00\x02ab\x00\x00\x00\x00\x01c", want: "ab"},
		"compressed":       {body: "\x01\x00\x00\x00\x02ab"},
		"no head":          {body: "\x00\x00\x00\x00", err: "it ends at byte 4"},
		"cut":              {body: "\x00\x00\x00\x00\x03ab", err: "has 2 bytes, want 3"},
		"another flag":     {body: "{\"a\":1}", err: "got flag 123"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := grpcbody.Message([]byte(c.body))
			if string(got) != c.want || (err == nil) != (c.err == "") || err != nil &&
				!strings.Contains(err.Error(), c.err) {
				t.Errorf("got %q, %v; want %q, %q", got, err, c.want, c.err)
			}
		})
	}
}

// wanted is what the library for protobuf reads of a GenerateRequest.
func wanted(m message) grpcbody.Generate {
	want := grpcbody.Generate{Stream: m.get("stream").Bool(), Sampling: grpcbody.Sampling{LogProbs: -1}}
	want.Text = []byte(m.get("text").String())
	s := m.sub("sampling_params")
	want.MaxTokens = min(int(s.get("max_tokens").Uint()), 1<<31-1)
	want.Choices = min(int(s.get("n").Uint()), 1<<31-1)
	want.Constrained = s.has("json_schema") || s.has("json_object")
	return want
}

func tokensOf(m message) (tokens []uint32) {
	list := m.get("input_ids").List()
	for i := range list.Len() {
		tokens = append(tokens, uint32(list.Get(i).Uint()))
	}
	return tokens
}

func TestReadGenerate(t *testing.T) {
	tokens := []uint32{1, 300, 1 << 31}
	tokenized := blank("TokenizedInput").with("original_text", "abc").with("input_ids", tokens)
	sampling := blank("SamplingParams").with("max_tokens", uint32(70000)).with("n", uint32(3)).
		with("logprobs", int32(5)).with("prompt_logprobs", int32(1)).with("json_schema", "{}")
	m := blank("GenerateRequest").with("request_id", "r").with("tokenized", tokenized).
		with("sampling_params", sampling).with("stream", true)
	got, err := grpcbody.ReadGenerate(m.encoded(t))
	if err != nil {
		t.Fatal(err)
	}
	want := grpcbody.Generate{Stream: true, Tokenized: tokenized.encoded(t), Sampling: grpcbody.Sampling{
		MaxTokens: 70000, Choices: 3, LogProbs: 5, PromptLogProbs: true, Constrained: true,
	}}
	if !bytes.Equal(got.Tokenized, want.Tokenized) || got.Text != nil || got.Stream != want.Stream ||
		got.Sampling != want.Sampling {
		t.Errorf("got %+v, want %+v", got, want)
	}
	var read []uint32
	if err := grpcbody.Tokens(got.Tokenized, func(token uint32) { read = append(read, token) }); err != nil ||
		!slices.Equal(read, tokens) {
		t.Errorf("got tokens %v, %v; want %v", read, err, tokens)
	}
	text, err := grpcbody.ReadGenerate(blank("GenerateRequest").with("text", "hello").encoded(t))
	if err != nil || string(text.Text) != "hello" || text.Tokenized != nil || text.LogProbs != -1 {
		t.Errorf("got %+v, %v; want the text alone", text, err)
	}
}

// A message is cut at each byte. A cut one is an error, unless it is cut between two fields.
func TestCutRequests(t *testing.T) {
	whole := []byte("\x0a\x01r\x1a\xc8\x01" + strings.Repeat("x", 200) + "\x28\x01")
	between := map[int]bool{0: true, 3: true, 3 + 203: true}
	for n := range whole {
		if _, err := grpcbody.ReadGenerate(whole[:n]); (err == nil) != between[n] {
			t.Errorf("the first %d bytes: %v", n, err)
		}
	}
}

func TestWrapped(t *testing.T) {
	body := blank("HttpBody").with("content_type", "application/json").with("data", []byte(`{"model":"m"}`))
	call := blank("RawPredictRequest").with("endpoint", "e").with("http_body", body)
	if got, err := grpcbody.Wrapped(call.encoded(t)); err != nil || string(got) != `{"model":"m"}` {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := grpcbody.Wrapped([]byte("\xff")); err == nil {
		t.Errorf("got %q of what is no message", got)
	}
}

// FuzzGenerate holds the reading of requests against the library for protobuf.
func FuzzGenerate(f *testing.F) {
	tokenized := blank("TokenizedInput").with("input_ids", []uint32{1, 2, 300})
	f.Add(blank("GenerateRequest").with("tokenized", tokenized).with("stream", true).encoded(f))
	f.Add(blank("GenerateRequest").with("text", "hi").
		with("sampling_params", blank("SamplingParams").with("max_tokens", uint32(9))).encoded(f))
	f.Add([]byte("\x12\x04\x10\x01\x10\x02\x1a\x01a"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := grpcbody.ReadGenerate(data)
		m := blank("GenerateRequest")
		if proto.Unmarshal(data, m.Message) != nil || merges(data) {
			return // the library also looks into what is not read here, and joins what stands twice
		}
		if err != nil {
			t.Fatalf("%x: %v, and the library reads %v", data, err, m)
		}
		want := wanted(m)
		got.LogProbs, got.PromptLogProbs = -1, false
		if string(got.Text) != string(want.Text) || got.Stream != want.Stream || got.MaxTokens != want.MaxTokens ||
			got.Choices != want.Choices || want.Constrained && !got.Constrained {
			t.Fatalf("%x: got %+v, want %+v", data, got, want)
		}
		var tokens []uint32
		if err := grpcbody.Tokens(got.Tokenized, func(token uint32) { tokens = append(tokens, token) }); err != nil {
			t.Fatalf("%x: %v", data, err)
		}
		if !slices.Equal(tokens, tokensOf(m.sub("tokenized"))) {
			t.Fatalf("%x: got tokens %v, want %v", data, tokens, m)
		}
	})
}

// merges reports whether a field of a message stands twice.
func merges(data []byte) bool {
	seen := map[protowire.Number]bool{}
	for len(data) > 0 {
		num, typ, n := protowire.ConsumeTag(data)
		if n < 0 {
			return false
		}
		m := protowire.ConsumeFieldValue(num, typ, data[n:])
		if m < 0 {
			return false
		}
		if typ == protowire.BytesType && seen[num] {
			return true
		}
		seen[num] = seen[num] || typ == protowire.BytesType
		data = data[n+m:]
	}
	return false
}

func answer(pieces ...[]byte) messages.Usage {
	var a grpcbody.Answer
	for _, p := range pieces {
		a.Write(p)
	}
	return a.Usage()
}

func checkCuts(t *testing.T, body []byte, want messages.Usage) {
	t.Helper()
	for i := range len(body) + 1 {
		if got := answer(body[:i], body[i:]); got != want {
			t.Fatalf("cut at byte %d: %+v, want %+v", i, got, want)
		}
	}
	if got := answer(slices.Collect(slices.Chunk(body, 1))...); got != want {
		t.Fatalf("byte by byte: %+v, want %+v", got, want)
	}
}

// stream is a streamed answer: two chunks, and what completes it.
func stream(t testing.TB) []byte {
	chunk := func(tokens ...uint32) []byte {
		return framed(blank("GenerateResponse").with("chunk", blank("GenerateStreamChunk").with("token_ids", tokens).
			with("prompt_tokens", uint32(700)).with("completion_tokens", uint32(len(tokens)))).encoded(t))
	}
	complete := blank("GenerateComplete").with("output_ids", []uint32{2, 300}).with("finish_reason", "stop").
		with("prompt_tokens", uint32(700)).with("completion_tokens", uint32(2)).with("cached_tokens", uint32(640))
	end := framed(blank("GenerateResponse").with("complete", complete).encoded(t))
	return slices.Concat(chunk(1), chunk(2, 300), end)
}

func TestAnswers(t *testing.T) {
	reported := func(prompt, cached, output int) messages.Usage {
		return messages.Usage{
			Source: messages.UsageReported, CachedKnown: true,
			PromptTokens: prompt, PromptKnown: prompt > 0,
			CachedTokens: cached,
			OutputTokens: output,
		}
	}
	seven := framed(blank("GenerateResponse").with("chunk", blank("GenerateStreamChunk").
		with("prompt_tokens", uint32(7))).encoded(t))
	whole := stream(t)
	for name, c := range map[string]struct {
		body []byte
		want messages.Usage
	}{
		"a stream":       {whole, reported(700, 640, 3)},
		"not to its end": {whole[:len(whole)-1], reported(700, 0, 3)},
		"told less later": {slices.Concat(seven, framed(blank("GenerateResponse").with("chunk",
			blank("GenerateStreamChunk").with("prompt_tokens", uint32(3))).encoded(t))), reported(7, 0, 0)},
		"nothing": {nil, messages.Usage{}},
		"no tokens": {framed(blank("GenerateResponse").with("chunk",
			blank("GenerateStreamChunk")).encoded(t)), messages.Usage{}},
		"an empty message":   {slices.Concat(framed(nil), seven), reported(7, 0, 0)},
		"compressed":         {slices.Concat([]byte{1}, seven[1:], seven), messages.Usage{}},
		"text":               {[]byte("no healthy upstream"), messages.Usage{}},
		"a broken message":   {slices.Concat(seven, framed([]byte{0x12, 9, 0x18, 1})), reported(7, 0, 0)},
		"a part that breaks": {slices.Concat(seven, framed([]byte{0x12, 3, 0x18, 5, 0x20})), reported(7, 0, 0)},
		"fields of others": {framed([]byte{0x2a, 1, 'x', 0x31, 1, 2, 3, 4, 5, 6, 7, 8, 0x35, 1, 2, 3, 4, 0x0a, 2,
			0x10, 9}), reported(9, 0, 0)},
		"a group": {framed([]byte{0x2b, 0x2c, 0x0a, 2, 0x10, 9}), messages.Usage{}},
	} {
		t.Run(name, func(t *testing.T) { checkCuts(t, c.body, c.want) })
	}
}

// An embedding is numbers of a fixed width, which are no message.
func TestEmbeddings(t *testing.T) {
	body := framed(append(blank("EmbedResponse").with("prompt_tokens", uint32(7)).encoded(t), 0x0a, 4, 0, 0, 0x80,
		0xff))
	for cut := range len(body) + 1 {
		a := grpcbody.Answer{Embeds: true}
		a.Write(body[:cut])
		if got := a.Usage(); cut < len(body) && got != (messages.Usage{}) {
			t.Fatalf("after %d bytes: %+v", cut, got)
		}
		a.Write(body[cut:])
		if got := a.Usage(); got.PromptTokens != 7 || got.Source != messages.UsageReported {
			t.Fatalf("cut at byte %d: %+v, want 7 tokens", cut, got)
		}
	}
}

// FuzzAnswer cuts answers at random, and holds what is read of whole messages against the library for protobuf.
func FuzzAnswer(f *testing.F) {
	f.Add(stream(f), uint64(1))
	f.Add(framed([]byte{0x12, 3, 0x18, 5, 0x20}), uint64(2))
	f.Fuzz(func(t *testing.T, body []byte, seed uint64) {
		want := answer(body)
		random := rand.New(rand.NewPCG(seed, 1))
		var pieces [][]byte
		for rest := body; len(rest) > 0; {
			n := 1 + random.IntN(len(rest))
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		if got := answer(pieces...); got != want {
			t.Fatalf("in pieces %x: got %+v, want %+v", pieces, got, want)
		}
		m := blank("GenerateResponse")
		if proto.Unmarshal(body, m.Message) != nil || merges(body) || !m.has("complete") ||
			merges(m.sub("complete").encoded(t)) {
			return
		}
		c := m.sub("complete")
		m.SetUnknown(nil)
		c.SetUnknown(nil)
		got := answer(framed(m.encoded(t)))
		if got.PromptTokens != count(c, "prompt_tokens") || got.OutputTokens != count(c, "completion_tokens") ||
			got.CachedTokens != count(c, "cached_tokens") {
			t.Fatalf("%x: got %+v, want %v", body, got, c)
		}
	})
}

func count(m message, name string) int { return min(int(m.get(name).Uint()), 1<<31-1) }

// The data of all messages are one text, at any cut.
func TestBodies(t *testing.T) {
	text := func(s string) []byte {
		return framed(blank("HttpBody").with("content_type", "text/event-stream").with("data", []byte(s)).encoded(t))
	}
	body := slices.Concat(text("data: {\"a\""), text(":1}\n\n"), text(""), text("data: [DONE]\n\n"))
	const want = "data: {\"a\":1}\n\ndata: [DONE]\n\n"
	for i := range len(body) + 1 {
		var b grpcbody.Bodies
		var got strings.Builder
		b.Write(body[:i], &got)
		b.Write(body[i:], &got)
		if got.String() != want {
			t.Fatalf("cut at byte %d: %q, want %q", i, got.String(), want)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	body := stream(t)
	if n := testing.AllocsPerRun(100, func() {
		var a grpcbody.Answer
		for i := range body {
			a.Write(body[i : i+1])
		}
		if a.Usage().OutputTokens != 3 {
			t.Fatal(a.Usage())
		}
	}); n > 1 { // of the answer itself
		t.Errorf("%v allocations, want at most 1", n)
	}
}
