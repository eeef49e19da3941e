package parsers_test

import (
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
		"another path":     {path: "/v1/moderations", body: `{"model":"a"}`},
		"embeddings":       {path: "/v1/embeddings", body: `{"model":"a"}`, want: `{"model":"new"}`},
		"counted tokens":   {path: "/v1/messages/count_tokens", body: `{"model":"a"}`, want: `{"model":"new"}`},
		"SGLang's own":     {path: "/generate", body: `{"text":"a"}`},
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
