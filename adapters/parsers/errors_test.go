package parsers_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/adapters/parsers"
	"github.com/signalbox-epp/signalbox/messages"
)

// scanErrorOf returns what finds the error in an answer of an API.
func scanErrorOf(api messages.API) func(pieces ...[]byte) int {
	return func(pieces ...[]byte) int {
		r := parsers.NewResponseScanner(api, "")
		for _, p := range pieces {
			r.Write(p)
		}
		return r.ErrorStatus()
	}
}

// errorsByHand are the captured answers that tell an error behind headers that told none.
var errorsByHand = map[string]int{"vllm_stream_engine_killed": 500, "vllm_generate_stream_engine_killed": 500,
	"vllm_messages_stream_engine_killed": 500}

func TestErrorsOfRealAnswers(t *testing.T) {
	files, err := filepath.Glob("testdata/captures/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d captures, error %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		head, body := capture(t, file)
		if !bytes.Contains(head, []byte(" 200 ")) {
			continue // its status is its error
		}
		t.Run(name, func(t *testing.T) {
			own := apiOf(name)
			for _, lines := range []string{"\n", "\r\n"} {
				answer := bytes.ReplaceAll(body, []byte("\n"), []byte(lines))
				checkCuts(t, scanErrorOf(own), answer, errorsByHand[name])
				for _, api := range []messages.API{messages.ChatAPI, messages.ResponsesAPI, messages.MessagesAPI} {
					checkWhole(t, scanErrorOf(api), answer, errorsByHand[name])
				}
			}
		})
	}
}

// apiOf returns the API of a captured answer.
func apiOf(name string) messages.API {
	switch {
	case strings.Contains(name, "_messages"):
		return messages.MessagesAPI
	case strings.Contains(name, "_responses"):
		return messages.ResponsesAPI
	}
	return messages.ChatAPI
}

// capture returns headers and body of a captured answer.
func capture(t *testing.T, file string) (head, body []byte) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, body, ok := bytes.Cut(bytes.ReplaceAll(raw, []byte("\r\n"), []byte("\n")), []byte("\n\n"))
	if !ok {
		t.Fatal("no blank line behind the headers")
	}
	return head, body
}

func TestErrorForms(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want int
	}{
		"overload": {`data: {"error": {"message": "busy", "type": "x", "param": null, "code": 503}}` +
			"\n\ndata: [DONE]\n\n", 503},
		"no blanks":              {`data:{"error":{"message":"busy","code":503}}` + "\n", 503},
		"no end of line":         {`data: {"error":{"code":500}}`, 500},
		"an end within":          {`data: {"error":{"code":500`, 0},
		"an end behind":          {`data: {"error":{"code":500,"mess`, 500},
		"null":                   {`data: {"error":null,"code":503}`, 0},
		"blanks":                 {`data: {"error" : { "code" : 503 , "x":1}}`, 503},
		"a key that ends so":     {`data: {"error":{"x\"code":503,"type":"BadRequestError"}}`, 400},
		"escaped backslash":      {`data: {"error":{"x":"\\","code":503}}`, 503},
		"of the client":          {`data: {"error":{"code":404}}`, 404},
		"the first counts":       {"data: {\"error\":{\"code\":503}}\ndata: {\"error\":{\"code\":500}}\n", 503},
		"behind others":          {"data: {\"choices\":[]}\n\n: alive\n\ndata: {\"error\":{\"code\":500}}\n\n", 500},
		"behind one that is cut": {"data: {\"choices\":[{\"text\":\"a\n\ndata: {\"error\":{\"code\":500}}\n\n", 500},
		"a code as a word":       {`data: {"error":{"code":"context_length_exceeded"}}`, 400},
		"a status as a word":     {`data: {"error":{"code":"502"}}`, 502},
		"known by its type":      {`data: {"error":{"code":"x","type":"ServiceUnavailableError"}}`, 503},
		"known by its code":      {`data: {"error":{"type":"x","code":"rate_limit_exceeded"}}`, 429},
		"no name":                {`data: {"error":{"message":"a"}}`, 500},
		"an unknown type":        {`data: {"error":{"type":"EngineDeadError"}}`, 500},
		"an error of its own":    {`data: {"error":{"code":42}}`, 500},
		"a fraction":             {`data: {"error":{"code":403.5}}`, 500},
		"an exponent":            {`data: {"error":{"code":403e1}}`, 500},
		"negative":               {`data: {"error":{"code":-403}}`, 500},
		"longer than a status":   {`data: {"error":{"code":4030}}`, 500},
		"huge":                   {`data: {"error":{"code":` + strings.Repeat("4", 99) + `}}`, 500},
		"a text":                 {`data: {"error":"out of memory"}`, 500},
		"an empty text":          {`data: {"error":""}`, 0},
		"another object's":       {`data: {"error":{"inner":{"code":500},"list":[{"code":501}],"code":404}}`, 404},
		"text that looks so":     {`data: {"error":{"message":"\"code\":503","code":500}}`, 500},
		"a value of that name":   {`data: {"error":{"type":"code","param":"code","code":500}}`, 500},
		"the next event's":       {"data: {\"error\":null}\n\ndata: {\"code\":500}\n\n", 0},
		"not first in it":        {`data: {"id":"x","error":{"code":502},"choices":[]}`, 502},
		"deeper":                 {`data: {"metadata":{"error":{"code":500}}}`, 0},
		"in a list":              {`data: [{"error":{"code":500}}]`, 0},
		"the whole body":         {` {"error":{"code":500}}`, 500},
		"behind a whole body":    {`{"choices":[]} {"error":{"code":500}}`, 0},
		"in the text":            {`data: {"choices":[{"text":"data: {\"error\":{\"code\":500}}"}]}`, 0},
		"in a whole body":        {"{\"choices\":[\n{\"error\":{\"code\":500}}\n]}", 0},
		"another field":          {`id: {"error":{"code":500}}`, 0},
		"data of several lines":  {"data: {\"error\":{\ndata: \"code\":\ndata: 503}}\n\n", 503},
		"an older vLLM":          {`data: {"object":"error","message":"a","type":"BadRequestError","code":400}`, 400},
		"an event so called":     {"event: error\ndata: {\"message\":\"a\"}\n\n", 500},
		"an event called else":   {"event: errors\ndata: {\"message\":\"a\"}\n\n", 0},
		"the event behind it":    {"event: error\n\ndata: {\"message\":\"a\"}\n\n", 0},
		"empty":                  {"", 0},
	} {
		t.Run(name, func(t *testing.T) {
			for _, api := range []messages.API{
				messages.UnknownAPI, messages.ChatAPI, messages.CompletionAPI, messages.ResponsesAPI,
				messages.MessagesAPI, messages.TokensAPI,
			} {
				checkCuts(t, scanErrorOf(api), []byte(c.body), c.want)
			}
		})
	}
}

// Errors that one API alone has. 4xx is the client's, and no failure of an endpoint.
func TestErrorsOfEachAPI(t *testing.T) {
	for name, c := range map[string]struct {
		api  messages.API
		body string
		want int
	}{
		"responses: an error": {messages.ResponsesAPI, "event: error\ndata: {\"type\":\"error\"," +
			"\"code\":\"server_error\",\"message\":\"a\",\"param\":null,\"sequence_number\":3}\n\n", 500},
		"responses: an error of the client": {messages.ResponsesAPI,
			`data: {"type":"error","code":"invalid_prompt","message":"a","param":null}` + "\n\n", 400},
		"responses: failed": {messages.ResponsesAPI, "event: response.failed\ndata: {\"response\":{\"id\":\"resp_1\"," +
			"\"status\":\"failed\",\"error\":{\"code\":\"rate_limit_exceeded\",\"message\":\"a\"}}," +
			"\"type\":\"response.failed\"}\n\n", 429},
		"responses: failed by the client": {messages.ResponsesAPI,
			`data: {"type":"response.failed","response":{"error":{"code":"invalid_image"},"status":"failed"}}` + "\n\n", 400},
		"responses: failed without a word": {messages.ResponsesAPI,
			`data: {"response":{"status":"failed","error":null},"type":"response.failed"}` + "\n\n", 500},
		"responses: incomplete": {messages.ResponsesAPI, "event: response.incomplete\ndata: {\"type\":" +
			"\"response.incomplete\",\"response\":{\"status\":\"incomplete\",\"error\":null," +
			"\"incomplete_details\":{\"reason\":\"max_output_tokens\"}}}\n\n", 0},
		"responses: completed": {messages.ResponsesAPI,
			`data: {"type":"response.completed","response":{"status":"completed","error":null}}` + "\n\n", 0},
		"responses: a whole one that failed": {messages.ResponsesAPI,
			`{"id":"resp_1","object":"response","status":"failed","error":{"code":"server_error","message":"a"}}`, 500},
		"responses: a whole one": {messages.ResponsesAPI,
			`{"id":"resp_1","object":"response","status":"completed","error":null,"output":[{"status":"failed"}]}`, 0},
		"messages: overloaded": {messages.MessagesAPI, "event: error\ndata: {\"type\":\"error\",\"error\":" +
			"{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n", 503},
		"messages: of the client": {messages.MessagesAPI,
			`data: {"type":"error","error":{"type":"invalid_request_error","message":"a"},"request_id":"r"}` + "\n\n", 400},
		"messages: of vLLM": {messages.MessagesAPI,
			`data: {"type":"error","error":{"type":"BadRequestError","message":"a"}}` + "\n\n", 400},
		"messages: unknown": {messages.MessagesAPI,
			`data: {"type":"error","error":{"type":"internal_something","message":"a"}}` + "\n\n", 500},
		"messages: whole": {messages.MessagesAPI, `{"type":"error","error":{"type":"api_error","message":"a"}}`, 500},
		"messages: a tool's": {messages.MessagesAPI,
			`{"type":"message","content":[{"type":"tool_use","input":{"type":"error","error":{"code":500}}}]}`, 0},
		"SGLang: of the client": {messages.GenerateAPI, `data: {"error":{"message":"too long"}}` + "\n\n", 400},
		"SGLang: ended by the server": {messages.GenerateAPI, `data: {"meta_info":{"id":"1","finish_reason":` +
			`{"type":"abort","message":"a","status_code":503,"err_type":"x"},"prompt_tokens":1}}` + "\n\n", 503},
		"SGLang: a bad prompt": {messages.GenerateAPI,
			`{"meta_info":{"finish_reason":{"status_code":400,"type":"abort","message":"a"}}}`, 400},
		"SGLang: ended by the client": {messages.GenerateAPI,
			`{"meta_info":{"finish_reason":{"type":"abort","message":"a","status_code":null}}}`, 0},
		"SGLang: stopped": {messages.GenerateAPI,
			`data: {"meta_info":{"finish_reason":{"type":"stop","matched":500,"status_code":500}}}` + "\n\n", 0},
		"another API's": {messages.ChatAPI,
			`{"status":"failed","meta_info":{"finish_reason":{"type":"abort","status_code":503}}}`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			scan := scanErrorOf(c.api)
			checkCuts(t, scan, []byte(c.body), c.want)
			checkCuts(t, scan, bytes.ReplaceAll([]byte(c.body), []byte("\n"), []byte("\r\n")), c.want)
			checkCuts(t, scan, bytes.ReplaceAll([]byte(c.body), []byte("data: "), []byte("data:")), c.want)
		})
	}
}

// FuzzErrors writes an answer of each API around any texts, one of them perhaps an error, and cuts it anywhere. The
// text of a client never makes an error, and any bytes are read alike however they are cut.
func FuzzErrors(f *testing.F) {
	f.Add("word", "busy", uint16(503), true, uint8(0), 20)
	f.Add("data: {\"error\":{\"code\":500}}", "\"code\":500", uint16(404), false, uint8(1), 90)
	f.Add("\n\ndata: {\"error\":{\"code\":500}}\n\n", "\\\"code\":", uint16(42), true, uint8(6), 1)
	f.Add("event: error\ndata: {\"type\":\"error\"}\n\n", "}", uint16(500), true, uint8(35), 40)
	f.Fuzz(func(t *testing.T, text, message string, code uint16, failed bool, form uint8, cut int) {
		api := messages.ChatAPI + messages.API(form>>2)%6 // up to SGLang's
		inner := map[string]any{"text": text, "error": map[string]any{"code": 500}}
		said := map[string]any{"type": "message", "error": nil, "choices": []any{inner}, "meta_info": text,
			"response": map[string]any{"error": nil, "output": []any{text, inner}}}
		wrong := map[string]any{"error": map[string]any{"message": message, "type": message + "!", "code": code}}
		want := int(code)
		if code < 400 || code > 599 {
			want = 500
			if api == messages.GenerateAPI {
				want = 400
			}
		}
		if api == messages.ResponsesAPI && form&1 != 0 {
			wrong = map[string]any{"type": "response.failed", "response": wrong, "message": message}
		}
		answer := marshal(t, said)
		switch {
		case form&2 != 0 && failed: // one object
			answer = marshal(t, wrong)
		case failed:
			answer = "data: " + answer + "\n\nevent: x\ndata:" + marshal(t, wrong) + "\n\ndata: [DONE]\n\n"
		case form&2 == 0:
			answer = "data: " + answer + "\n\ndata: [DONE]\n\n"
		}
		if !failed {
			want = 0
		}
		if form&1 != 0 {
			answer = strings.ReplaceAll(answer, "\n", "\r\n")
		}
		scan := scanErrorOf(api)
		cut = min(max(cut, 0), len(answer))
		if got := scan([]byte(answer[:cut]), []byte(answer[cut:])); got != want {
			t.Fatalf("API %d: %s\ncut at %d: %d, want %d", api, answer, cut, got, want)
		}
		cut = min(cut, len(text))
		if got, whole := scan([]byte(text[:cut]), []byte(text[cut:])), scan([]byte(text)); got != whole {
			t.Fatalf("API %d: %q cut at %d: %d, whole %d", api, text, cut, got, whole)
		}
	})
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
