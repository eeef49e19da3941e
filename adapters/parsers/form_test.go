package parsers_test

import (
	"os"
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/adapters/parsers"
	"github.com/signalbox-epp/signalbox/messages"
)

func TestAnswerForm(t *testing.T) {
	chat, completion := messages.AnswerForm{API: messages.ChatAPI, Choices: 1},
		messages.AnswerForm{API: messages.CompletionAPI, Choices: 1}
	with := func(f messages.AnswerForm, change func(*messages.AnswerForm)) messages.AnswerForm {
		change(&f)
		return f
	}
	stream := with(chat, func(f *messages.AnswerForm) { f.Stream = true })
	each := with(stream, func(f *messages.AnswerForm) { f.UsageInEach = true })
	structured := with(chat, func(f *messages.AnswerForm) { f.Structured = true })
	repeats := with(completion, func(f *messages.AnswerForm) { f.RepeatsMore = true })
	probs := func(f messages.AnswerForm, n uint8) messages.AnswerForm {
		f.LogProbs = n
		return f
	}
	choices := func(f messages.AnswerForm, n uint8) messages.AnswerForm {
		f.Choices = n
		return f
	}
	for body, c := range map[string]struct {
		path string
		want messages.AnswerForm
	}{
		`{}`:             {chatPath, chat},
		`{"prompt":"a"}`: {completionPath, completion},
		`{"stream":true,"stream_options":{"include_usage":true}}`:                                {chatPath, stream},
		`{"stream":true,"stream_options":{"continuous_usage_stats":true}}`:                       {chatPath, each},
		`{"stream_options":{"continuous_usage_stats":true}}`:                                     {chatPath, chat},
		`{"stream":true,"stream_options":{"continuous_usage_stats":true},"stream_options":null}`: {chatPath, stream},
		`{"tools":[{"type":"function"}]}`: {chatPath,
			structured},
		`{"tools":[]}`:   {chatPath, chat},
		`{"tools":[ ]}`:  {chatPath, chat},
		`{"tools":null}`: {chatPath, chat},
		`{"functions":[{}],"response_format":null}`:  {chatPath, structured},
		`{"response_format":{"type":"json_object"}}`: {chatPath, structured},
		`{"structured_outputs":{"choice":["a"]}}`:    {chatPath, structured},
		`{"logprobs":true}`:                          {chatPath, probs(chat, 1)},
		`{"logprobs":true,"top_logprobs":5}`:         {chatPath, probs(chat, 6)},
		`{"logprobs":false,"top_logprobs":5}`:        {chatPath, chat},
		`{"logprobs":5,"prompt":1}`:                  {chatPath, chat},
		`{"logprobs":0}`:                             {completionPath, probs(completion, 1)},
		`{"logprobs":5}`:                             {completionPath, probs(completion, 6)},
		`{"logprobs":null}`:                          {completionPath, completion},
		`{"logprobs":-1}`:                            {completionPath, completion},
		`{"logprobs":true}  `:                        {completionPath, completion},
		`{"logprobs":99999999}`:                      {completionPath, probs(completion, 255)},
		`{"top_logprobs":5}`:                         {completionPath, completion},
		`{"n":3}`:                                    {chatPath, choices(chat, 3)},
		`{"n":0}`:                                    {chatPath, chat},
		`{"n":"x"}`:                                  {chatPath, chat},
		`{"n":2,"prompt":["a","b","c"]}`:             {completionPath, choices(completion, 6)},
		`{"prompt":[[1,2],[3]]}`:                     {completionPath, choices(completion, 2)},
		`{"prompt":[1,2,3]}`:                         {completionPath, completion},
		`{"prompt":["a","b"],"prompt":"a"}`:          {completionPath, completion},
		`{"n":2147483647,"prompt":["a","b","c"]}`:    {completionPath, choices(completion, 255)},
		`{"echo":true}`:                              {completionPath, repeats},
		`{"prompt_logprobs":0}`:                      {completionPath, repeats},
		`{"prompt_logprobs":null,"echo":false}`:      {completionPath, completion},
		`{"return_token_ids":true}`:                  {completionPath, repeats},
	} {
		if got := parse(t, c.path, body).Form; got != c.want {
			t.Errorf("%s: got %+v, want %+v", body, got, c.want)
		}
	}
	if got := parse(t, "/v1/moderations", `{"stream":true}`).Form; got != (messages.AnswerForm{}) {
		t.Errorf("a body that is not read: got %+v", got)
	}
}

// TestUsageEventIsMeasured: the bytes of the event that carries usage alone, whatever the pieces in which it comes.
func TestUsageEventIsMeasured(t *testing.T) {
	scan := func(kind string) func(...[]byte) int64 {
		return func(pieces ...[]byte) int64 {
			r := parsers.NewResponseScanner(messages.UnknownAPI, kind)
			for _, p := range pieces {
				r.Write(p)
			}
			return r.Usage().OwnBytes
		}
	}
	for name, kind := range map[string]string{
		"vllm_chat_stream_usage": "text/event-stream; charset=utf-8", "vllm_completion_stream_usage": "",
		"llamacpp_chat_stream_usage": "text/event-stream",
	} {
		raw, err := os.ReadFile("testdata/captures/" + name + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		_, body, _ := strings.Cut(strings.ReplaceAll(string(raw), "\r\n", "\n"), "\n\n")
		want := 0
		for event := range strings.SplitAfterSeq(body, "\n\n") {
			if strings.Contains(event, `"usage":{`) {
				want = len(event)
			}
		}
		if want < 100 {
			t.Fatalf("%s has no event with usage", name)
		}
		checkCuts(t, scan(kind), []byte(body), int64(want))
	}
	plain := []byte(`{"x":1,"usage":{"prompt_tokens":5}}` + "\n\n")
	checkCuts(t, scan("application/json"), plain, 0)
}
