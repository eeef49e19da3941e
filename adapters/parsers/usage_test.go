package parsers_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/signalbox-epp/signalbox/adapters/parsers"
	"github.com/signalbox-epp/signalbox/messages"
)

func scan(pieces ...[]byte) messages.Usage {
	var u parsers.UsageScanner
	for _, p := range pieces {
		u.Write(p)
	}
	got := u.Usage()
	if got.OutputTokens > 0 && got.Source != messages.UsageReported || got.PromptTokens > 0 && !got.PromptKnown ||
		got.CachedTokens > 0 && !got.CachedKnown {
		panic(fmt.Sprintf("a figure of %+v is not called known", got))
	}
	got.Source, got.PromptKnown, got.CachedKnown = messages.NoUsage, false, false // those of zeros are known too
	return got
}

// usageByHand is what a reader finds in each captured answer: prompt, cached and output tokens.
var usageByHand = map[string]messages.Usage{
	"llamacpp_chat":                       {PromptTokens: 10, OutputTokens: 16},
	"llamacpp_chat_stream_usage":          {PromptTokens: 10, CachedTokens: 9, OutputTokens: 4},
	"llamacpp_completion":                 {PromptTokens: 6, OutputTokens: 16},
	"llamacpp_completion_stream_usage":    {PromptTokens: 3, CachedTokens: 2, OutputTokens: 3},
	"llamacpp_error_bad_model":            {PromptTokens: 5, CachedTokens: 4, OutputTokens: 2}, // answered 200
	"llamacpp_responses":                  {PromptTokens: 5, CachedTokens: 3, OutputTokens: 8},
	"vllm_cache_salt":                     {PromptTokens: 54, OutputTokens: 1},
	"vllm_chat":                           {PromptTokens: 10, OutputTokens: 16},
	"vllm_chat_stream":                    {}, // not asked for
	"vllm_chat_stream_continuous_usage":   {PromptTokens: 10, OutputTokens: 6},
	"vllm_chat_stream_usage":              {PromptTokens: 10, OutputTokens: 6},
	"vllm_completion":                     {PromptTokens: 6, OutputTokens: 16},
	"vllm_completion_stream_usage":        {PromptTokens: 6, OutputTokens: 6},
	"vllm_completion_token_ids":           {PromptTokens: 4, OutputTokens: 4},
	"vllm_count_tokens":                   {}, // it counts, and uses none
	"vllm_error_bad_model":                {},
	"vllm_error_no_model_field":           {PromptTokens: 2, OutputTokens: 1}, // answered 200
	"vllm_error_overload_503":             {},
	"vllm_generate":                       {PromptTokens: 8, OutputTokens: 5},
	"vllm_generate_cached":                {PromptTokens: 197, CachedTokens: 192, OutputTokens: 2},
	"vllm_generate_error":                 {},
	"vllm_generate_stream":                {PromptTokens: 8, OutputTokens: 3},
	"vllm_generate_stream_engine_killed":  {}, // ends in an error
	"vllm_generate_two_choices_stream":    {PromptTokens: 5, OutputTokens: 4},
	"vllm_lora_b_completion":              {PromptTokens: 54, OutputTokens: 16},
	"vllm_lora_chat":                      {PromptTokens: 57, OutputTokens: 16},
	"vllm_messages":                       {PromptTokens: 5, OutputTokens: 8},
	"vllm_messages_cached":                {PromptTokens: 352, CachedTokens: 320, OutputTokens: 2},
	"vllm_messages_cached_stream":         {PromptTokens: 352, CachedTokens: 320, OutputTokens: 2},
	"vllm_messages_error_stream":          {},
	"vllm_messages_stream_engine_killed":  {PromptTokens: 13},
	"vllm_messages_stream":                {PromptTokens: 5, OutputTokens: 4},
	"vllm_prefix_first":                   {PromptTokens: 108, OutputTokens: 40},
	"vllm_prefix_second_cached":           {PromptTokens: 108, CachedTokens: 96, OutputTokens: 4},
	"vllm_prefix_second_cached_stream":    {PromptTokens: 111, OutputTokens: 2},
	"vllm_request_id":                     {PromptTokens: 2, OutputTokens: 2},
	"vllm_responses":                      {PromptTokens: 10, OutputTokens: 8},
	"vllm_responses_cached":               {PromptTokens: 352, CachedTokens: 320, OutputTokens: 4},
	"vllm_responses_cached_stream":        {PromptTokens: 352, CachedTokens: 320, OutputTokens: 2},
	"vllm_responses_error_stream":         {},
	"vllm_responses_stream_engine_killed": {}, // breaks off, without a word
	"vllm_responses_stream":               {PromptTokens: 10, OutputTokens: 6},
	"vllm_stream_cut_by_sigterm":          {}, // cut before its end
	"vllm_stream_drain_sigterm":           {},
	"vllm_stream_engine_killed":           {}, // ends in an error
}

func TestUsageOfRealAnswers(t *testing.T) {
	files, err := filepath.Glob("testdata/captures/*.txt")
	if err != nil || len(files) != len(usageByHand) {
		t.Errorf("%d captures, error %v; want the %d of the table", len(files), err, len(usageByHand))
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			want, known := usageByHand[name]
			if !known {
				t.Fatal("the table lacks it")
			}
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, body, ok := bytes.Cut(bytes.ReplaceAll(raw, []byte("\r\n"), []byte("\n")), []byte("\n\n"))
			if !ok {
				t.Fatal("no blank line behind the headers")
			}
			checkCuts(t, scan, body, want)
			checkCuts(t, scan, bytes.ReplaceAll(body, []byte("\n"), []byte("\r\n")), want)
			checkCuts(t, scan, bytes.ReplaceAll(body, []byte("data: "), []byte("data:")), want)
			checkCuts(t, scan, bytes.TrimSpace(bytes.ReplaceAll(body, []byte("data: [DONE]"), nil)), want)
		})
	}
}

func TestAnswersWithoutUsage(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/captures/without_usage.txtar")
	if err != nil || len(archive.Files) < 25 {
		t.Fatalf("%d captures, error %v; want 25 or more", len(archive.Files), err)
	}
	for _, f := range archive.Files {
		t.Run(f.Name, func(t *testing.T) { checkCuts(t, scan, f.Data, messages.Usage{}) })
	}
}

// checkWhole reads the body whole and in single bytes.
func checkWhole[T comparable](t *testing.T, scan func(pieces ...[]byte) T, body []byte, want T) {
	t.Helper()
	if got := scan(body); got != want {
		t.Fatalf("whole: %+v, want %+v", got, want)
	}
	if got := scan(slices.Collect(slices.Chunk(body, 1))...); got != want {
		t.Fatalf("byte by byte: %+v, want %+v", got, want)
	}
}

// checkCuts also cuts the body in two at every byte, without events that are like others. The race detector, which has
// nothing to find in one goroutine and slows each scan tenfold, sees every seventh cut.
func checkCuts[T comparable](t *testing.T, scan func(pieces ...[]byte) T, body []byte, want T) {
	t.Helper()
	checkWhole(t, scan, body, want)
	body = withoutLike(body)
	step := 1
	if raceOn {
		step = 7
	}
	for i := 0; i <= len(body); i += step {
		if got := scan(body[:i], body[i:]); got != want {
			t.Fatalf("%s\ncut at byte %d: %+v, want %+v", body, i, got, want)
		}
	}
}

// valueOrDigits is a string that is no key, or a number.
var valueOrDigits = regexp.MustCompile(`"(?:[^"\\]|\\.)*"(\s*:)?|\d+`)

// withoutLike returns server-sent events without those that differ from an event before and from one behind them in
// strings and numbers alone, as most of a stream do. Nothing is left out of a body that has other text.
func withoutLike(body []byte) (short []byte) {
	events := bytes.SplitAfter(body, []byte("\n\n"))
	if bytes.Contains(body, []byte("\r\n\r\n")) {
		events = bytes.SplitAfter(body, []byte("\r\n\r\n"))
	}
	shapes := make([]string, len(events))
	for i, e := range events {
		shapes[i] = valueOrDigits.ReplaceAllStringFunc(string(e), func(text string) string {
			if strings.HasSuffix(text, ":") {
				return text
			}
			return "#"
		})
	}
	for i, e := range events {
		if !slices.Contains(shapes[:i], shapes[i]) || !slices.Contains(shapes[i+1:], shapes[i]) {
			short = append(short, e...)
		}
	}
	return short
}

func TestUsageForms(t *testing.T) {
	five := messages.Usage{PromptTokens: 5}
	tests := map[string]struct {
		body string
		want messages.Usage
	}{
		"in content":       {`{"x":"\"usage\":{\"prompt_tokens\":9}","usage":{"prompt_tokens":5}}`, five},
		"content behind":   {`{"usage":{"prompt_tokens":5},"x":"\"usage\":{\"prompt_tokens\":9}"}`, five},
		"a value":          {`{"x":"usage","y":{"prompt_tokens":9},"usage":{"prompt_tokens":5}}`, five},
		"ends in the word": {`{"x\"usage":{"prompt_tokens":9}}`, messages.Usage{}},
		"null":             {`{"usage":{"prompt_tokens":5}} {"usage":null}`, five},
		"nothing known":    {`{"usage":{"prompt_tokens":5}} {"usage":{"total_tokens":3}}`, five},
		"cut":              {`{"usage":{"prompt_tokens":5}} {"usage":{"prompt_tokens":7`, five},
		"the highest value of each": {
			`{"usage":{"prompt_tokens":5,"completion_tokens":1}} {"usage" : {"prompt_tokens" : 4,"completion_tokens":2}}`,
			messages.Usage{PromptTokens: 5, OutputTokens: 2}},
		"zeros at the end": {`{"usage":{"input_tokens":5,"cache_read_input_tokens":30,"output_tokens":1}} ` +
			`{"usage":{"input_tokens":0,"cache_read_input_tokens":0,"output_tokens":7}}`,
			messages.Usage{PromptTokens: 35, CachedTokens: 30, OutputTokens: 7}},
		"parts of the prompt told at the end": {`{"usage":{"input_tokens":35,"output_tokens":0}} ` +
			`{"usage":{"input_tokens":5,"cache_read_input_tokens":30,"output_tokens":7}}`,
			messages.Usage{PromptTokens: 35, CachedTokens: 30, OutputTokens: 7}},
		"parts of the prompt": {`{"usage":{"input_tokens":5,"cache_read_input_tokens":30,` +
			`"cache_creation_input_tokens":200,"cache_creation":{"ephemeral_5m_input_tokens":200},"output_tokens":6}}`,
			messages.Usage{PromptTokens: 235, CachedTokens: 30, OutputTokens: 6}},
		"cut objects do not count": {`{"usage":{"prompt_tokens":5,"completion_tokens":2}} {"usage":{"prompt_tokens":7,`,
			messages.Usage{PromptTokens: 5, OutputTokens: 2}},
		"other objects in it": {`{"usage":{"a":{"prompt_tokens":9},"b":[1,{"x":2}],"prompt_tokens":5,"completion_tokens_details":{"cached_tokens":3}}}`, five},
		"cached": {`{"usage":{"prompt_tokens_details":{"audio_tokens":1,"cached_tokens":4},"prompt_tokens":5,"cached_tokens":8}}`,
			messages.Usage{PromptTokens: 5, CachedTokens: 4}},
		"strings and words": {`{"usage":{"prompt_tokens":"9","completion_tokens":null,"x":true,"prompt_tokens":5}}`,
			five},
		"not whole": {`{"usage":{"prompt_tokens":5,"completion_tokens":1.5}}`, five},
		"whole floats": {`{"usage":{"prompt_tokens":5.0,"completion_tokens":1.5e1}}`,
			messages.Usage{PromptTokens: 5, OutputTokens: 15}},
		"too long": {`{"usage":{"prompt_tokens":5,"completion_tokens":0.` + strings.Repeat("0", 40) + "}}",
			five},
		"negative":          {`{"usage":{"prompt_tokens":5,"completion_tokens":-7}}`, five},
		"huge":              {`{"usage":{"prompt_tokens":5,"completion_tokens":99999999999999999999999}}`, five},
		"long key":          {`{"usage":{"` + strings.Repeat("prompt_tokens", 99) + `":9,"prompt_tokens":5}}`, five},
		"escaped quote":     {`{"usage":{"a\"prompt_tokens":9,"x\\":1,"prompt_tokens":5}}`, five},
		"events over lines": {"data: {\"usage\": {\ndata: \"prompt_tokens\":\ndata: 5}}\n\n", five},
		"key begins twice":  {`{"""usage":{"prompt_tokens":5}}`, five},
		"no usage":          {`{"choices":[]}`, messages.Usage{}},
		"responses": {`{"usage":{"input_tokens":5,"input_tokens_details":{"cached_tokens":4},"output_tokens":6,"output_tokens_details":{"cached_tokens":9}}}`,
			messages.Usage{PromptTokens: 5, CachedTokens: 4, OutputTokens: 6}},
		"empty usage object": {`{"usage":{}}`, messages.Usage{}},
		"in the input of a tool, before": {`{"content":[{"type":"tool_use","input":{"usage":{"input_tokens":900,"output_tokens":9}}}],` +
			`"usage":{"input_tokens":5}}`, five},
		"in the input of a tool, behind": {`{"usage":{"input_tokens":5},"content":[{"input":{"usage":{"input_tokens":900}}}]}`,
			five},
		"in the input of a tool alone": {`{"usage":null,"content":[{"input":{"usage":{"input_tokens":900,"output_tokens":9}}}]}`,
			messages.Usage{}},
		"in a tool that is echoed": {`data: {"response":{"tools":[{"parameters":{"default":{"usage":{"output_tokens":7}}}}],"usage":null}}` +
			"\n\n" + `data: {"response":{"tools":[{"parameters":{"usage":{"output_tokens":7}}}],"usage":{"input_tokens":5}}}` +
			"\n\n", five},
		"in lists, of each choice": {`[{"usage":{"prompt_tokens":5,"completion_tokens":2}},{"usage":{"prompt_tokens":5,"completion_tokens":3}}]`,
			messages.Usage{PromptTokens: 5, OutputTokens: 3}},
		"parts told apart": {"data: {\"message\":{\"usage\":{\"input_tokens\":5}}}\n\n" +
			"data: {\"usage\":{\"cache_read_input_tokens\":30,\"output_tokens\":7}}\n\n",
			messages.Usage{PromptTokens: 35, CachedTokens: 30, OutputTokens: 7}},
		"cached beyond the prompt": {`{"usage":{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":50}}}`, five},
		"figures behind it":        {`{"usage":{"prompt_tokens":5},"completion_tokens":9,"cached_tokens":3}`, five},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { checkCuts(t, scan, []byte(tt.body), tt.want) })
	}
}

// A figure that is missing beside one that is there, or cannot be read, is not 0.
func TestUnknownFigures(t *testing.T) {
	type known struct{ prompt, output, cached bool }
	for body, want := range map[string]known{
		`{"prompt_tokens":5,"completion_tokens":0}`:                                {prompt: true, output: true},
		`{"prompt_tokens":5}`:                                                      {prompt: true},
		`{"completion_tokens":5}`:                                                  {output: true},
		`{"prompt_tokens":5,"completion_tokens":-5}`:                               {prompt: true},
		`{"prompt_tokens":5,"completion_tokens":1e30}`:                             {prompt: true},
		`{"prompt_tokens":5,"completion_tokens":1e400}`:                            {prompt: true},
		`{"prompt_tokens":5,"completion_tokens":2147483648}`:                       {prompt: true},
		`{"prompt_tokens":5,"completion_tokens":"5"}`:                              {prompt: true},
		`{"prompt_tokens":5,"completion\u005ftokens":5}`:                           {prompt: true},
		`{"prompt_tokens":5,"completion_tokens":null}`:                             {prompt: true},
		`{"prompt_tokens":-5,"completion_tokens":5}`:                               {output: true},
		`{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":-1}}`:         {prompt: true},
		`{"prompt_tokens":5}} {"usage":{"completion_tokens":5}`:                    {prompt: true, output: true},
		`{"prompt_tokens":5}} {"usage":{"prompt_tokens":-5,"completion_tokens":5}`: {prompt: true, output: true},
		`{"input_tokens":5,"cache_read_input_tokens":-1}`:                          {},
		`{"input_tokens":5,"cache_creation_input_tokens":"9","output_tokens":5}`:   {output: true},
		`{"input_tokens":5,"cache_read_input_tokens":null,"output_tokens":5}`:      {prompt: true, output: true},
		`{"cache_read_input_tokens":5}`:                                            {cached: true},
		`{"prompt_tokens":-5}`:                                                     {},
		`{"input_tokens":5,"cache_read_input_tokens":{"n":5}}`:                     {},
		`{"input_tokens":5,"cache_read_input_tokens":[5]}`:                         {},
		`{"input_tokens":5,"cache_read_input_tokens":true}`:                        {},
		`{"input_tokens":5,"cache_read\u005finput_tokens":5}`:                      {},
		`{"prompt_tokens": false,"completion_tokens":{}}`:                          {},
	} {
		checkCuts(t, func(pieces ...[]byte) known {
			var s parsers.UsageScanner
			for _, p := range pieces {
				s.Write(p)
			}
			u := s.Usage()
			return known{u.PromptKnown, u.Source == messages.UsageReported, u.CachedKnown}
		}, []byte(`{"usage":`+body+"}"), want)
	}
}

// Cached tokens that a server does not report are not 0.
func TestUnknownCachedTokens(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want bool
	}{
		"none":              {`{"usage":{"prompt_tokens":5}}`, false},
		"no details":        {`{"usage":{"prompt_tokens":5,"prompt_tokens_details":null}}`, false},
		"null":              {`{"usage":{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":null}}}`, false},
		"empty details":     {`{"usage":{"prompt_tokens":5,"prompt_tokens_details":{}}}`, false},
		"zero":              {`{"usage":{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":0}}}`, true},
		"zero in responses": {`{"usage":{"input_tokens":5,"input_tokens_details":{"cached_tokens":0}}}`, true},
		"zero in messages":  {`{"usage":{"input_tokens":5,"cache_read_input_tokens":0}}`, true},
		"written alone":     {`{"usage":{"input_tokens":5,"cache_creation_input_tokens":5}}`, false},
		"in a later object": {"data: {\"usage\":{\"output_tokens\":5}}\r\n\r\n" +
			"data:{\"usage\":{\"cache_read_input_tokens\":0}}", true},
		"in an earlier one":  {`{"usage":{"cache_read_input_tokens":0}} {"usage":{"output_tokens":5}}`, true},
		"in one that is cut": {`{"usage":{"prompt_tokens":5}} {"usage":{"cache_read_input_tokens":0,`, false},
	} {
		t.Run(name, func(t *testing.T) {
			checkCuts(t, func(pieces ...[]byte) bool {
				var u parsers.UsageScanner
				for _, p := range pieces {
					u.Write(p)
				}
				return u.Usage().CachedKnown
			}, []byte(c.body), c.want)
		})
	}
	for file, want := range map[string]bool{
		"vllm_chat": false, "vllm_messages": false, "vllm_generate": true, "vllm_generate_stream": true,
		"vllm_messages_cached_stream": true, "vllm_responses_cached": true, "llamacpp_chat_stream_usage": true,
	} {
		_, body := capture(t, "testdata/captures/"+file+".txt")
		var u parsers.UsageScanner
		if u.Write(body); u.Usage().CachedKnown != want {
			t.Errorf("%s: cached tokens are known: %t, want %t", file, !want, want)
		}
	}
}

// FuzzUsage cuts any bytes in three: no panic, and the cuts change nothing. On JSON it agrees with encoding/json.
func FuzzUsage(f *testing.F) {
	f.Add([]byte(`{"usage":{"prompt_tokens":5,"completion_tokens":6,"prompt_tokens_details":{"cached_tokens":1}}}`), 3,
		20)
	f.Add([]byte("data: {\"usage\":null}\r\n\r\ndata: {\"usage\":{\"prompt_tokens\":5}}"), 11, 12)
	f.Add([]byte(`\"usage"usage"":{{"[]}`), 1, 2)
	captures, err := filepath.Glob("testdata/captures/*.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range captures {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw[max(0, len(raw)-2000):], 1000, 1500) // their ends, where usage stands
	}
	f.Fuzz(func(t *testing.T, body []byte, i, j int) {
		want := scan(body)
		i = min(max(i, 0), len(body))
		j = min(max(j, i), len(body))
		if got := scan(body[:i], body[i:j], body[j:]); got != want {
			t.Fatalf("%q cut at %d and %d: %+v, whole: %+v", body, i, j, got, want)
		}
		tail, err := json.Marshal(string(body)) // whatever it is as text, it does not speak of usage
		if err != nil {
			t.Fatal(err)
		}
		answer := `{"usage":{"prompt_tokens":5},"text":` + string(tail) + `}`
		if got := scan([]byte(answer)); got != (messages.Usage{PromptTokens: 5}) {
			t.Fatalf("%s: %+v, want 5 prompt tokens", answer, got)
		}
	})
}

// FuzzEvents writes an answer of known usage, as JSON or as events, around any text, and cuts it anywhere.
func FuzzEvents(f *testing.F) {
	f.Add("word", uint32(5), uint32(6), uint32(1), uint8(0), 20)
	f.Add("\"usage\":{\"prompt_tokens\":9}", uint32(1<<31), uint32(0), uint32(7), uint8(1), 90)
	f.Add("data: \r\n\r\n\\", uint32(0), uint32(0), uint32(0), uint8(7), 200)
	f.Fuzz(func(t *testing.T, text string, prompt, output, cached uint32, form uint8, cut int) {
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		usage := fmt.Sprintf(`"usage":{"prompt_tokens":%d,"total_tokens":7,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}}`, prompt, output, cached)
		choices := `"choices":[{"index":0,"delta":{"content":` + string(quoted) + `}}]`
		answer := "{" + choices + "," + usage + "}"
		if form&1 != 0 {
			answer = "data: {" + choices + `,"usage":null}` + "\n\ndata: {" + choices + "," + usage +
				"}\n\ndata: [DONE]\n\n"
		}
		if form&2 != 0 {
			answer = strings.ReplaceAll(answer, "\n", "\r\n")
		}
		if form&4 != 0 {
			answer = strings.ReplaceAll(answer, "data: ", ": alive\ndata:")
		}
		known := func(n uint32) int { // more than that is none
			if n > 1<<31-1 {
				return 0
			}
			return int(n)
		}
		want := messages.Usage{PromptTokens: known(prompt), CachedTokens: known(cached), OutputTokens: known(output)}
		if prompt <= 1<<31-1 && want.CachedTokens > want.PromptTokens { // which cannot be
			want.CachedTokens = 0
		}
		cut = min(max(cut, 0), len(answer))
		if got := scan([]byte(answer[:cut]), []byte(answer[cut:])); got != want {
			t.Fatalf("%s\ncut at %d: %+v, want %+v", answer, cut, got, want)
		}
	})
}
