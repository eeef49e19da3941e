package parsers_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/adapters/parsers"
)

func scanID(pieces ...[]byte) string {
	var s parsers.IDScanner
	for _, p := range pieces {
		s.Write(p)
	}
	return string(s.ID())
}

// TestIDsOfRealAnswers: the id is what a reader finds first that begins as ids of responses do.
func TestIDsOfRealAnswers(t *testing.T) {
	for name, want := range map[string]string{
		"vllm_chat": "chatcmpl-9c867f6ad1e2e96b", "vllm_request_id": "cmpl-my-id-1",
		"vllm_responses":        "resp_ad79559035880b77",
		"vllm_responses_stream": "resp_9cdcc9b8ddd880ed", "llamacpp_chat": "chatcmpl-446q3Fp2C6vtjoB9lBWxSr8E8vtYPCfK",
	} {
		raw, err := os.ReadFile(filepath.Join("testdata", "captures", name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		_, body, _ := bytes.Cut(bytes.ReplaceAll(raw, []byte("\r\n"), []byte("\n")), []byte("\n\n"))
		t.Run(name, func(t *testing.T) { checkCuts(t, scanID, body, want) })
	}
}

func TestIDForms(t *testing.T) {
	long := strings.Repeat("a", 128)
	for name, c := range map[string]struct{ body, want string }{
		"blanks":              {"{\n \"id\" :\t\"resp_1\"}", "resp_1"},
		"the first wins":      {`{"id":"resp_1"} {"id":"resp_2"}`, "resp_1"},
		"another's before":    {`{"tools":[{"id":"call_1"},{"id":"chatcmpl-tool-1"}],"id":"chatcmpl-1"}`, "chatcmpl-1"},
		"in content":          {`{"content":"\"id\":\"resp_9\"","id":"resp_1"}`, "resp_1"},
		"a value":             {`{"name":"id","x":"resp_9"}`, ""},
		"a number":            {`{"id":7,"x":"resp_9"}`, ""},
		"null":                {`{"id":null,"id":"resp_1"}`, "resp_1"},
		"a prefix alone":      {`{"id":"resp_"}`, ""},
		"unknown":             {`{"id":"x-1"}`, ""},
		"cut":                 {`{"id":"resp_1`, ""},
		"too long":            {`{"id":"resp_` + long + `"}`, ""},
		"as long as can be":   {`{"id":"resp_` + long[:123] + `"}`, "resp_" + long[:123]},
		"escaped":             {`{"id":"resp_\u001b[2J","id":"resp_1"}`, "resp_1"},
		"bytes of a terminal": {"{\"id\":\"resp_\x1b[2J\"}", ""},
		"quotes before":       {`{"":"","i":"","id":"resp_1"}`, "resp_1"},
	} {
		t.Run(name, func(t *testing.T) { checkCuts(t, scanID, []byte(c.body), c.want) })
	}
}

func TestIDIsFoundWithoutAllocation(t *testing.T) {
	body := []byte(`{"choices":[{"id":"call_1"}],"id":"chatcmpl-1"}`)
	if n := testing.AllocsPerRun(100, func() {
		var s parsers.IDScanner
		s.Write(body)
		if len(s.ID()) == 0 {
			t.Error("not found")
		}
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
