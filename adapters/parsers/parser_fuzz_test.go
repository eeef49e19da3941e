package parsers_test

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/messages"
)

// FuzzParse holds the parser against encoding/json, which takes no byte order mark: what is valid,
// and the value of each field.
func FuzzParse(f *testing.F) {
	for _, body := range []string{
		`{"model":"m","messages":[{"role":"user","content":"Hello"}],"stream":true,"max_tokens":5}`,
		`{"model":"\ud83d\ude00\u0000","stream":false,"max_completion_tokens":1.5e2,"max_tokens":0}`,
		`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:x"}}]}],"tools":[]}`,
		`{"prompt":[[1,2,3],"a",-4.5],"model":"a","model":null,"stream_options":{"include_usage":true},"stream":1}`,
		`{"prompt":"a\\\"b\/\b\f\n\r\t\u12ab","cache_salt":"\ud800\u0041"}`,
		`{"\u006dodel":"b", "x" : [ { } , [ ] , null , true , false , -0.1E+9 ] }`,
		"{\"model\":\"\xff\xed\xa0\x80\"}", `[]`, `{`, `"`, ` `, "\x00", "{\x00}\x00", "\xff\xfe{\x00}\x00",
		"{\"a\":\"\x1f\"}", `{"a":1e}`, `{"a":[1,]}`, `{} {}`, `nul`,
		"\xef\xbb\xbf{\"model\":\"m\"}", "\xef\xbb\xbf", "\xef\xbb\xbf\xef\xbb\xbf{}", "\xef\xbb{}",
	} {
		f.Add([]byte(body), true)
		f.Add([]byte(body), false)
	}
	f.Fuzz(func(t *testing.T, body []byte, chat bool) {
		path := completionPath
		if chat {
			path = chatPath
		}
		var got messages.Request
		err := parser.Parse(path, jsonType, "", body, &got)
		wide := len(body) > 1 && (body[0] == 0 || body[1] == 0 || body[0]|1 == 0xff && body[0]^body[1] == 1)
		if wide && err != nil {
			t.Fatalf("body %q, which is not UTF-8: %v", body, err)
		}
		if len(body) == 0 || wide || err != nil && strings.Contains(err.Error(), "nested deeper") {
			return
		}
		var fields map[string]json.RawMessage
		object := json.Unmarshal(bytes.TrimPrefix(body, []byte(mark)), &fields) == nil && fields != nil
		if (err == nil) != object {
			t.Fatalf("body %q: error %v; encoding/json says it is an object: %t", body, err, object)
		}
		if object {
			checkFacts(t, got, fields, chat)
		}
	})
}

func checkFacts(t *testing.T, got messages.Request, fields map[string]json.RawMessage, chat bool) {
	want := messages.Request{Model: stringOf(fields["model"]), Salt: stringOf(fields["cache_salt"])}
	want.Stream = string(fields["stream"]) == "true"
	var options map[string]json.RawMessage
	_ = json.Unmarshal(fields["stream_options"], &options) // another type means no options
	want.Usage = !want.Stream || string(options["include_usage"]) == "true"
	want.OutputTokens = tokensOf(fields["max_tokens"])
	if n := tokensOf(fields["max_completion_tokens"]); chat && n > 0 {
		want.OutputTokens = n
	}
	if len(fields["model"]) > 1024 || len(fields["cache_salt"]) > 1024 {
		want.Model, want.Salt = got.Model, got.Salt
	}
	if got.Model != want.Model || got.Salt != want.Salt || got.Stream != want.Stream || got.Usage != want.Usage ||
		got.OutputTokens != want.OutputTokens {
		t.Fatalf("fields %s\n got %+v\nwant %+v", fields, got, want)
	}
	var prompt string
	if !chat && json.Unmarshal(fields["prompt"], &prompt) == nil && !bytes.ContainsRune(fields["prompt"], '\ufffd') &&
		!strings.Contains(prompt, "\ufffd") && got.PromptTokens != (len(prompt)+3)/4 && len(fields["prompt"]) > 0 &&
		fields["prompt"][0] == '"' {
		t.Fatalf("prompt %q: %d tokens, want a quarter of %d bytes", prompt, got.PromptTokens, len(prompt))
	}
}

func stringOf(raw json.RawMessage) (s string) {
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

func tokensOf(raw json.RawMessage) int {
	f, err := strconv.ParseFloat(string(raw), 64)
	if len(raw) == 0 || raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') || err != nil && !math.IsInf(f, 0) {
		return 0
	}
	if f < 0 || f != math.Trunc(f) {
		return 0
	}
	return int(min(f, math.MaxInt32))
}

func TestAllocations(t *testing.T) {
	tests := map[string]struct {
		path, body string
		want       float64
	}{
		"model, salt, blocks": {chatPath, chatBody(), 3},
		"short prompt":        {chatPath, `{"model":"a-model","messages":[{"role":"user","content":"hi"}]}`, 2},
		"tokens": {completionPath, `{"model":"a-model","prompt":[` + strings.Repeat("12345,", 999) + `7]}`,
			2},
		"no model": {completionPath, `{"\u0061":[{"b":null}]}`, 0},
	}
	for name, tt := range tests {
		body := []byte(tt.body)
		var got messages.Request
		n := testing.AllocsPerRun(100, func() {
			if err := parser.Parse(tt.path, jsonType, "", body, &got); err != nil {
				t.Fatal(err)
			}
		})
		if n != tt.want {
			t.Errorf("%s: %v allocations, want %v", name, n, tt.want)
		}
	}
}

// TestBodyMayChangeAfterwards shows that nothing of the body is kept.
func TestBodyMayChangeAfterwards(t *testing.T) {
	body := []byte(`{"model":"abc","cache_salt":"def"}`)
	var got messages.Request
	if err := parser.Parse(chatPath, jsonType, "", body, &got); err != nil {
		t.Fatal(err)
	}
	clear(body)
	if got.Model != "abc" || got.Salt != "def" {
		t.Errorf("after the body was cleared: model %q, salt %q; want abc, def", got.Model, got.Salt)
	}
}

// TestEveryCutIsRefused cuts a body at every byte: only the whole one is JSON.
func TestEveryCutIsRefused(t *testing.T) {
	body := []byte(`{"model":"m","messages":[{"role":"user","content":[{"text":"a\u00e9\n"}],"x":[true,null,-1.5e+3]}],"stream":false}`)
	for n := 1; n < len(body); n++ {
		if err := parser.Parse(chatPath, jsonType, "", slices.Clone(body[:n]), &messages.Request{}); err == nil {
			t.Errorf("first %d bytes %q: no error", n, body[:n])
		}
	}
}

func proseBody() string {
	turn := `{"role":"user","content":"` + strings.Repeat("Answer politely and briefly, cite the paragraph of the "+
		"handbook that you rely on, and say so if you do not know.\\n", 16) + `"},`
	return `{"model":"a-model","stream":true,"messages":[` + strings.TrimSuffix(strings.Repeat(turn, 8), ",") + `]}`
}

func chatBody() string {
	turn := `{"role":"user","content":"` + strings.Repeat("All work and no play makes Jack a dull boy.\\n", 40) + `"},`
	return `{"model":"a-model","cache_salt":"tenant","stream":true,"messages":[` +
		strings.TrimSuffix(strings.Repeat(turn, 8), ",") + `]}`
}

func BenchmarkParse(b *testing.B) {
	for name, body := range map[string]string{
		"chat16K":  chatBody(),
		"prose16K": proseBody(),
		"plain1M":  `{"messages":[{"role":"user","content":"` + strings.Repeat("lorem ipsum dolor ", 1<<20/18) + `"}]}`,
		"escape1M": `{"messages":[{"role":"user","content":"` + strings.Repeat(`\u4e2d`, 1<<20/6) + `"}]}`,
	} {
		b.Run(name, func(b *testing.B) {
			p, raw := parser, []byte(body)
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				var got messages.Request
				if err := p.Parse(chatPath, jsonType, "", raw, &got); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
