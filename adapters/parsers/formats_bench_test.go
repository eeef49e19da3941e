package parsers_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/parsers"
	"github.com/signalbox-epp/signalbox/messages"
)

// BenchmarkFormats reads a body of 64 KB in each format, in turns with a chat of 64 KB, and reports its shortest time
// as that many times the chat's.
func BenchmarkFormats(b *testing.B) {
	text := strings.Repeat("the quick brown fox jumps over the dog ", 64<<10/39)
	tokens := strings.Repeat("12345,", 64<<10/6) + "7"
	chat := []byte(`{"model":"m","messages":[{"role":"user","content":"` + text + `"}]}`)
	form := "--cut\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n" +
		"--cut\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n" + text + "\r\n--cut--\r\n"
	every := parser.Of(parsers.Every)
	for name, c := range map[string]struct {
		parser     *parsers.Parser
		path, kind string
		body       []byte
	}{
		"completions":   {every, completionPath, jsonType, []byte(`{"model":"m","prompt":"` + text + `"}`)},
		"responses":     {every, "/v1/responses", jsonType, []byte(`{"model":"m","input":"` + text + `"}`)},
		"messages":      {every, "/v1/messages", jsonType, chat},
		"counted":       {every, "/v1/messages/count_tokens", jsonType, chat},
		"embeddings":    {every, "/v1/embeddings", jsonType, []byte(`{"model":"m","input":"` + text + `"}`)},
		"images":        {every, "/v1/images/generations", jsonType, []byte(`{"model":"m","prompt":"` + text + `"}`)},
		"vLLM-tokens":   {every, "/inference/v1/generate", jsonType, []byte(`{"token_ids":[` + tokens + `]}`)},
		"SGLang-tokens": {every, "/generate", jsonType, []byte(`{"input_ids":[` + tokens + `]}`)},
		"SGLang-text":   {every, "/generate", jsonType, []byte(`{"text":"` + text + `"}`)},
		"form":          {every, "/v1/audio/transcriptions", "multipart/form-data; boundary=cut", []byte(form)},
		"gRPC-text":     {every, generatePath, grpcType, frame(lengthDelimited(3, []byte(text)))},
		"gRPC-tokens":   {every, generatePath, grpcType, frame(tokensField(bytesOf(64 << 10)...))},
		"Vertex-chat":   {every, vertexPath + "ChatCompletions", grpcType, wrapped(string(chat))},
		"passthrough":   {parser.Of(0), chatPath, jsonType, chat},
	} {
		b.Run(name, func(b *testing.B) {
			read := func(p *parsers.Parser, path, kind string, body []byte) time.Duration {
				var got messages.Request
				began := time.Now()
				if err := p.Parse(path, kind, "", body, &got); err != nil {
					b.Fatal(err)
				}
				return time.Since(began)
			}
			if len(c.body) < 63<<10 || len(c.body) > 66<<10 {
				b.Fatalf("%d bytes, want 64 KB", len(c.body))
			}
			body := bytes.Clone(c.body)
			own, chats := time.Hour, time.Hour // the shortest of each, which nothing else disturbed
			for b.Loop() {
				own = min(own, read(c.parser, c.path, c.kind, body))
				chats = min(chats, read(every, chatPath, jsonType, chat))
			}
			b.ReportMetric(float64(own)/float64(chats), name+"/chat")
			b.ReportMetric(float64(chats)/1000, "µs/chat")
			b.ReportMetric(0, "ns/op") // it is that of both
		})
	}
}

// bytesOf returns tokens of one byte each.
func bytesOf(n int) []uint64 {
	tokens := make([]uint64, n)
	for i := range tokens {
		tokens[i] = uint64(i % 128)
	}
	return tokens
}
