package modelserver

import (
	"reflect"
	"strings"
	"testing"
)

func TestModelLists(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want []string
		fail string
	}{
		"vllm with adapters": {string(page(t, "vllm-0.32.0/models_lora.json")), []string{"tiny", "lora-a", "lora-b"},
			""},
		"llama.cpp":          {string(page(t, "llama.cpp-11434/models.json")), []string{"tiny"}, ""},
		"none":               {`{"data":[]}`, []string{}, ""},
		"twice and nameless": {`{"data":[{"id":"a"},{},{"id":"a"},{"id":""},{"id":"b"}]}`, []string{"a", "b"}, ""},
		"no data":            {`{"object":"list"}`, nil, "no data"},
		"null":               {`null`, nil, "no data"},
		"no JSON":            {`<html>`, nil, "invalid character"},
		"id is a number":     {`{"data":[{"id":5}]}`, nil, "cannot unmarshal number"},
		"cut":                {`{"data":[{"id":"a"}`, nil, "unexpected end"},
		"empty":              {``, nil, "unexpected end"},
		"long id": {`{"data":[{"id":"` + strings.Repeat("x", 513) + `"}]}`, nil,
			"data[0].id has 513 bytes, limit 512"},
		"too many": {`{"data":[{}` + strings.Repeat(",{}", 4096) + `]}`, nil, "4097 models, limit 4096"},
		"too deep": {strings.Repeat(`{"data":[`, 20000), nil, "exceeded max depth"},
	} {
		got, err := DecodeModels([]byte(c.body))
		if c.fail != "" && (err == nil || !strings.Contains(err.Error(), c.fail)) || c.fail == "" && err != nil {
			t.Errorf("%s: %v, want %q", name, err, c.fail)
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func FuzzDecodeModels(f *testing.F) {
	f.Add([]byte(`{"data":[{"id":"a"},{"id":"b"}]}`))
	f.Add([]byte(`{"data":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		names, err := DecodeModels(body)
		if err != nil && names != nil {
			t.Errorf("%q: names %q beside %v", body, names, err)
		}
		seen := map[string]bool{}
		for _, n := range names {
			if n == "" || seen[n] || len(n) > maxNameBytes {
				t.Errorf("%q: name %q", body, n)
			}
			seen[n] = true
		}
	})
}
