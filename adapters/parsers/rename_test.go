package parsers_test

import (
	"cmp"
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/adapters/parsers"
	"github.com/signalbox-epp/signalbox/messages"
)

func TestRename(t *testing.T) {
	const form = "multipart/form-data; boundary=b"
	part := func(name, value string) string {
		return "--b\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n"
	}
	tests := map[string]struct {
		path, contentType, encoding, body string
		model, want                       string // want "" = it cannot be renamed
	}{
		"first": {body: `{"model":"a","messages":[]}`, want: `{"model":"new","messages":[]}`},
		"spaces, order and numbers stay": {
			body: "\n{ \"n\" : 12345678901234567890 , \"x\":\"<\\u00e9>\",\t\"model\" : \"a\" ,\"model_\":\"a\" }\n",
			want: "\n{ \"n\" : 12345678901234567890 , \"x\":\"<\\u00e9>\",\t\"model\" : \"new\" ,\"model_\":\"a\" }\n",
		},
		"only that of the top": {
			body: `{"metadata":{"model":"a"},"messages":[{"content":"\"model\":\"a\""}],"model":"a"}`,
			want: `{"metadata":{"model":"a"},"messages":[{"content":"\"model\":\"a\""}],"model":"new"}`,
		},
		"twice":           {body: `{"model":"a","model":"b"}`, want: `{"model":"a","model":"new"}`},
		"escaped key":     {body: `{"mod\u0065l":"a"}`, want: `{"mod\u0065l":"new"}`},
		"no string":       {body: `{"model":{"a":[1]},"n":1}`, want: `{"model":"new","n":1}`},
		"none":            {body: ` { "messages":[]}`, want: ` {"model":"new", "messages":[]}`},
		"empty object":    {body: `{}`, want: `{"model":"new"}`},
		"byte order mark": {body: "\xef\xbb\xbf{\"model\":\"a\"}", want: "\xef\xbb\xbf{\"model\":\"new\"}"},
		"name to escape":  {body: `{"model":"a"}`, model: `a/"b"\<é`, want: `{"model":"a/\"b\"\\<é"}`},
		"longer than held": {body: `{"model":"a"}`, model: strings.Repeat("x", 900), want: `{"model":"` +
			strings.Repeat("x", 900) + `"}`},
		"identity":         {encoding: "identity", body: `{"model":"a"}`, want: `{"model":"new"}`},
		"encoded":          {encoding: "gzip", body: `{"model":"a"}`},
		"unknown encoding": {encoding: "zip", body: `{"model":"a"}`},
		"no JSON type":     {contentType: "text/plain", body: `{"model":"a"}`},
		"another path":     {path: "/v1/moderations", body: `{"model":"a"}`, want: `{"model":"new"}`},
		"embeddings":       {path: "/v1/embeddings", body: `{"model":"a"}`, want: `{"model":"new"}`},
		"counted tokens":   {path: "/v1/messages/count_tokens", body: `{"model":"a"}`, want: `{"model":"new"}`},
		"SGLang's own":     {path: "/generate", body: `{"text":"a"}`},
		"SGLang's, named":  {path: "/generate", body: `{"text":"a","model":"a"}`, want: `{"text":"a","model":"new"}`},
		"no object":        {body: `["model"]`},
		"cut":              {body: `{"model":"a"`},
		"form": {path: "/v1/audio/transcriptions", contentType: form, body: part("file", "x") +
			part("model", "a") + part("n", "1") + "--b--\r\n", want: part("file", "x") + part("model", "new") +
			part("n", "1") + "--b--\r\n"},
		"form without": {path: "/v1/audio/transcriptions", contentType: form, body: part("file", "x") +
			"--b--\r\n"},
		"form, model twice": {path: "/x", contentType: form, body: part("model", "a") + part("model", "b") + "--b--",
			want: part("model", "a") + part("model", "new") + "--b--"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			path, contentType, model := tc.path, tc.contentType, tc.model
			if path == "" {
				path = "/v1/chat/completions"
			}
			if contentType == "" {
				contentType = jsonType
			}
			if model == "" {
				model = "new"
			}
			parser := parsers.New(parsers.Config{})
			room := append(make([]byte, 0, len(tc.body)+100), tc.body...)
			from, to, text := parser.Rename(path, contentType, tc.encoding, room, model)
			if text == nil {
				if tc.want != "" {
					t.Fatalf("%s: it cannot be renamed, want %s", tc.body, tc.want)
				}
				return
			}
			got := tc.body[:from] + string(text) + tc.body[to:]
			if got != tc.want {
				t.Fatalf("%s: got %s, want %s", tc.body, got, tc.want)
			}
			var req messages.Request
			if err := parser.Parse(path, contentType, tc.encoding, []byte(got), &req); err != nil || req.Model == "" {
				t.Errorf("%s: read again: model %q, %v", got, req.Model, err)
			}
		})
	}
}

func TestSetPriority(t *testing.T) {
	tests := map[string]struct {
		path, contentType, encoding, body string
		priority                          int
		want                              string // "" = it cannot be set
	}{
		"none": {body: `{ "model":"a"}`, priority: 10, want: `{"priority":10, "model":"a"}`},
		"spaces, order and numbers stay": {
			body:     "{ \"n\" : 12345678901234567890,\t\"priority\" : {\"a\":[1]} ,\"x\":\"\\u00e9\"}\n",
			priority: -2147483648,
			want:     "{ \"n\" : 12345678901234567890,\t\"priority\" : -2147483648 ,\"x\":\"\\u00e9\"}\n",
		},
		"only that of the top": {body: `{"metadata":{"priority":1},"priority":7}`,
			want: `{"metadata":{"priority":1},"priority":0}`},
		"twice":           {body: `{"priority":1,"priority":2}`, priority: 3, want: `{"priority":1,"priority":3}`},
		"escaped key":     {body: `{"priorit\u0079":1}`, priority: 3, want: `{"priorit\u0079":3}`},
		"empty object":    {body: `{}`, priority: 1, want: `{"priority":1}`},
		"byte order mark": {body: "\xef\xbb\xbf{}", priority: 1, want: "\xef\xbb\xbf{\"priority\":1}"},
		"messages":        {path: "/v1/messages", body: `{}`, priority: 1, want: `{"priority":1}`},
		"responses":       {path: "/v1/responses", body: `{}`, priority: 1, want: `{"priority":1}`},
		"embeddings":      {path: "/v1/embeddings", body: `{}`, priority: 1, want: `{"priority":1}`},
		"vLLM's own":      {path: "/inference/v1/generate", body: `{}`, priority: 1, want: `{"priority":1}`},
		"SGLang's own":    {path: "/generate", body: `{}`},
		"counted tokens":  {path: "/v1/messages/count_tokens", body: `{}`},
		"another path":    {path: "/v1/moderations", body: `{}`},
		"scores":          {path: "/score/", body: `{}`, priority: 1, want: `{"priority":1}`},
		"reranking":       {path: "/v2/rerank", body: `{}`, priority: 1, want: `{"priority":1}`},
		"classification":  {path: "/classify", body: `{}`, priority: 1, want: `{"priority":1}`},
		"pooling":         {path: "/pooling", body: `{}`, priority: 1, want: `{"priority":1}`},
		"no JSON type":    {contentType: "text/plain", body: `{}`},
		"encoded":         {encoding: "gzip", body: `{}`},
		"no object":       {body: `[1]`},
		"cut":             {body: `{"priority":1`},
		"no body":         {},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			path := cmp.Or(tc.path, "/v1/chat/completions")
			from, to, text := parsers.New(parsers.Config{}).SetPriority(path, tc.contentType, tc.encoding,
				[]byte(tc.body), tc.priority)
			got := ""
			if text != nil {
				got = tc.body[:from] + string(text) + tc.body[to:]
			}
			if got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.body, got, tc.want)
			}
		})
	}
}
