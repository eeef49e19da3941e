package parsers_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/adapters/parsers"
	"github.com/signalbox-epp/signalbox/messages"
)

func scanError(pieces ...[]byte) int {
	var e parsers.ErrorScanner
	for _, p := range pieces {
		e.Write(p)
	}
	return e.Status()
}

// Of all captured answers one has an error within: its engine was killed.
func TestErrorsOfRealAnswers(t *testing.T) {
	files, err := filepath.Glob("testdata/captures/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d captures, error %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			body, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want := 0
			if strings.HasSuffix(file, "stream_engine_killed.txt") {
				want = 500
			}
			checkCuts(t, scanError, body, want)
			checkCuts(t, scanError, bytes.ReplaceAll(body, []byte("\n"), []byte("\r\n")), want)
		})
	}
}

func TestErrorForms(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want int
	}{
		"overload": {`data: {"error": {"message": "busy", "type": "x", "param": null, "code": 503}}` +
			"\n\ndata: [DONE]\n\n", 503},
		"no blanks":            {`data:{"error":{"message":"busy","code":503}}` + "\n", 503},
		"no end of line":       {`data: {"error":{"code":500}}`, 500},
		"an end within":        {`data: {"error":{"code":500`, 0},
		"a line that ends":     {"data: {\"error\":{\"code\":500\n", 0},
		"null":                 {`data: {"error":null,"code":503}`, 0},
		"a fraction":           {`data: {"error":{"code":503.5}}`, 0},
		"an exponent":          {`data: {"error":{"code":503e1}}`, 0},
		"negative":             {`data: {"error":{"code":-503}}`, 0},
		"blanks":               {`data: {"error" : { "code" : 503 , "x":1}}`, 503},
		"a key that begins so": {`data: {"error":{"codes":503}}`, 0},
		"a key that ends so":   {`data: {"error":{"x\"code":503}}`, 0},
		"escaped backslash":    {`data: {"error":{"x":"\\","code":503}}`, 503},
		"behind the error":     {`data: {"error":{"x":1},"code":503}`, 0},
		"of the client":        {`data: {"error":{"code":404}}`, 404},
		"the first counts":     {"data: {\"error\":{\"code\":503}}\ndata: {\"error\":{\"code\":500}}\n", 503},
		"behind others":        {"data: {\"choices\":[]}\n\n: alive\n\ndata: {\"error\":{\"code\":500}}\n\n", 500},
		"no status":            {`data: {"error":{"code":"context_length_exceeded"}}`, 0},
		"a status as a word":   {`data: {"error":{"code":"500"}}`, 0},
		"an error of its own":  {`data: {"error":{"code":42}}`, 0},
		"longer than a status": {`data: {"error":{"code":5030}}`, 0},
		"huge":                 {`data: {"error":{"code":` + strings.Repeat("5", 99) + `}}`, 0},
		"another object's":     {`data: {"error":{"inner":{"code":500},"list":[{"code":501}],"code":404}}`, 404},
		"text that looks so":   {`data: {"error":{"message":"\"code\":503","code":500}}`, 500},
		"a value of that name": {`data: {"error":{"type":"code","param":"code","code":500}}`, 500},
		"the next event's":     {"data: {\"error\":null}\n\ndata: {\"code\":500}\n\n", 0},
		"not first in it":      {`data: {"metadata":{"error":{"code":500}}}`, 0},
		"not an event":         {`{"error":{"code":500}}`, 0},
		"in the text":          {`data: {"choices":[{"text":"data: {\"error\":{\"code\":500}}"}]}`, 0},
		"another field":        {`event: {"error":{"code":500}}`, 0},
		"empty":                {"", 0},
	} {
		t.Run(name, func(t *testing.T) { checkCuts(t, scanError, []byte(c.body), c.want) })
	}
}

// FuzzErrors writes a stream of events around any texts, one of them perhaps an error, and cuts it anywhere.
func FuzzErrors(f *testing.F) {
	f.Add("word", "busy", uint16(503), true, uint8(0), 20)
	f.Add("data: {\"error\":{\"code\":500}}", "\"code\":500", uint16(404), false, uint8(1), 90)
	f.Add("\n\ndata: {\"error\":{\"code\":500}}\n\n", "\\\"code\":", uint16(42), true, uint8(2), 1)
	f.Fuzz(func(t *testing.T, text, message string, code uint16, failed bool, form uint8, cut int) {
		said, err := json.Marshal(map[string]any{
			"choices": []any{map[string]any{"delta": map[string]any{"content": text}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		why, err := json.Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		answer := "data: " + string(said) + "\n\n"
		want := 0
		if failed {
			answer += fmt.Sprintf(`data: {"error": {"message": %s, "type": %s, "code": %d}}`, why, why, code) + "\n\n"
			if code >= 400 && code < 600 {
				want = int(code)
			}
		}
		answer += "data: [DONE]\n\n"
		if form&1 != 0 {
			answer = strings.ReplaceAll(answer, "\n", "\r\n")
		}
		if form&2 != 0 {
			answer = strings.ReplaceAll(answer, "data: {\"error\": ", "data:{\"error\":")
		}
		cut = min(max(cut, 0), len(answer))
		if got := scanError([]byte(answer[:cut]), []byte(answer[cut:])); got != want {
			t.Fatalf("%s\ncut at %d: %d, want %d", answer, cut, got, want)
		}
	})
}

// A response's scanner finds both, errors in events alone: another body can hold what a client wants it to.
func TestResponseScanner(t *testing.T) {
	for contentType, want := range map[string]int{
		"text/event-stream": 503, "Text/Event-Stream ; charset=utf-8": 503, "": 503, // headers may not be shown
		"application/json": 0, "text/plain": 0, "application/grpc": 0,
	} {
		r := parsers.NewResponseScanner(messages.UnknownAPI, contentType)
		r.Write([]byte(`data: {"usage":{"prompt_tokens":5}}` + "\n\ndata: {\"error\":{\"co"))
		r.Write([]byte("de\":503}}\n\n"))
		if r.Usage().PromptTokens != 5 || r.ErrorStatus() != want {
			t.Errorf("%q: usage %+v, error status %d, want %d", contentType, r.Usage(), r.ErrorStatus(), want)
		}
	}
}

func TestScannersAllocateNothing(t *testing.T) {
	chunk := []byte(`data: {"choices":[{"delta":{"content":"word"}}],"usage":{"prompt_tokens":5}}` + "\n\n")
	r := parsers.NewResponseScanner(messages.UnknownAPI, "text/event-stream")
	if n := testing.AllocsPerRun(100, func() { r.Write(chunk) }); n != 0 {
		t.Errorf("%v allocations for a chunk, want 0", n)
	}
}

func BenchmarkResponse(b *testing.B) {
	chunk := []byte(`data: {"id":"chatcmpl-bc9efe9d753eac5e","object":"chat.completion.chunk","created":1795251547,"model":"tiny",` +
		`"choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null,"token_ids":null}]}` +
		"\n\n")
	r := parsers.NewResponseScanner(messages.UnknownAPI, "text/event-stream")
	b.SetBytes(int64(len(chunk)))
	b.ReportAllocs()
	for b.Loop() {
		r.Write(chunk)
	}
}
