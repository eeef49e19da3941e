package parsers_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/signalbox-epp/signalbox/messages"
)

// FuzzOrder writes the members of any body the other way round: the prompt is the same.
func FuzzOrder(f *testing.F) {
	paths := []string{chatPath, messagesPath, "/v1/responses", completionPath, "/generate", "/v1/conversations"}
	for i := range paths {
		f.Add(
			[]byte(
				`{"tools":[{"a":1}],"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"image_url":{"url":"b"}}]}],`+
					`"system":[{"text":"x-anthropic-billing-header"}],"input":"c","instructions":"d","chat_template_kwargs":{"a":null,"b":[]}}`,
			),
			i,
		)
		f.Add(
			[]byte(
				`{"input":[{"content":"a","role":"b"},{"role":null,"text":"c"}],"previous_response_id":"r","reasoning":{"a":{}},`+
					`"text":"e","input_ids":[[1],2],"items":[{"type":"message","content":null,"role":"\u0061"}],"prompt":["a",1]}`,
			),
			i,
		)
	}
	f.Add([]byte(`{"tools":[{"role":""}],"input":"0"}`), 2)
	f.Fuzz(func(t *testing.T, body []byte, at int) {
		path := paths[uint(at)%uint(len(paths))]
		var got, turned messages.Request
		if parser.WithItems().Parse(path, jsonType, "", body, &got) != nil ||
			got.Form.API == 0 && got.PromptTokens == 0 {
			return
		}
		other, ok := reversed(body)
		if !ok {
			return
		}
		if err := parser.WithItems().Parse(path, jsonType, "", other, &turned); err != nil {
			t.Fatalf("%s and not %s: %v", body, other, err)
		}
		if lead(&got, &turned) != got.Blocks.Len() || got.Blocks.Len() != turned.Blocks.Len() ||
			got.PromptTokens != turned.PromptTokens || got.Media != turned.Media ||
			got.Items.Len() != turned.Items.Len() {
			t.Fatalf("%s\n%s:\n%+v\n%+v", body, other, got, turned)
		}
	})
}

// reversed returns an object with its members the other way round. It returns false for one in which a member is there
// twice, or the earlier turns have two names.
func reversed(body []byte) ([]byte, bool) {
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(body, []byte(mark))))
	if _, err := d.Token(); err != nil {
		return nil, false
	}
	var all [][]byte
	seen := map[string]bool{}
	history := 0
	for d.More() {
		key, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil || seen[key.(string)] {
			return nil, false
		}
		switch key {
		case "previous_response_id", "conversation", "previous_response", "previous_input_messages":
			history++
		}
		seen[key.(string)] = true
		name, _ := json.Marshal(key)
		all = append(all, slices.Concat(name, []byte(":"), value))
	}
	slices.Reverse(all)
	return slices.Concat([]byte("{"), bytes.Join(all, []byte(",")), []byte("}")), history < 2
}
