package vllm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/signalbox-epp/signalbox/adapters/lab/vllm/batch"
	"github.com/signalbox-epp/signalbox/engine/clip"
)

const (
	// bodyLimit bounds what one request takes of memory.
	bodyLimit = 64 << 20
	// choiceLimit bounds how many sequences one request may ask for.
	choiceLimit = 128
)

// object is a JSON object whose fields are not decoded yet.
type object map[string]json.RawMessage

// readObject reads the body of a request.
func readObject(w http.ResponseWriter, r *http.Request) (object, *failure) {
	media, _, _ := strings.Cut(strings.ToLower(r.Header.Get("Content-Type")), ";")
	if strings.TrimSpace(media) != "application/json" {
		f := invalid("", "Unsupported Media Type: Only 'application/json' is allowed")
		return nil, f
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyLimit))
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		return nil, &failure{http.StatusRequestEntityTooLarge, "Request Entity Too Large",
			fmt.Sprintf("body over %d bytes", tooLarge.Limit), ""}
	}
	if err != nil || !utf8.Valid(body) {
		return nil, &failure{status: http.StatusBadRequest, message: "There was an error parsing the body"}
	}
	body = bytes.TrimSpace(bytes.TrimPrefix(body, []byte("\ufeff"))) // vLLM steps over a byte order mark
	if len(body) == 0 || string(body) == "null" {
		return nil, invalid("body", "{'type': 'missing', 'loc': 'body', 'msg': 'Field required', 'input': 'None'}")
	}
	var o object
	if err := json.Unmarshal(body, &o); err != nil {
		if syntax := new(json.SyntaxError); errors.As(err, &syntax) {
			return nil, badJSON(syntax, len(body))
		}
		return nil, wrongType("body", "model_attributes_type",
			"Input should be a valid dictionary or object to extract fields from", body)
	}
	return o, nil
}

// badJSON is a syntax error in the words of Python's parser.
func badJSON(syntax *json.SyntaxError, size int) *failure {
	text, at := "Expecting value", int(syntax.Offset)-1
	switch said := syntax.Error(); {
	case strings.Contains(said, "unexpected end"):
		at = size
	case strings.Contains(said, "after top-level value"):
		text = "Extra data"
	case strings.Contains(said, "object key string"):
		text = "Expecting property name enclosed in double quotes"
	case strings.Contains(said, "after object key:value pair"), strings.Contains(said, "after array element"):
		text = "Expecting ',' delimiter"
	case strings.Contains(said, "after object key"):
		text = "Expecting ':' delimiter"
	}
	quote := "'"
	if strings.Contains(text, quote) {
		quote = `"`
	}
	loc := "body." + strconv.Itoa(at)
	return invalid(loc, fmt.Sprintf("{'type': 'json_invalid', 'loc': '%s', 'msg': 'JSON decode error', 'input': "+
		"'<dict of 0 items>', "+
		"'ctx': {'error': %s}}", loc, quote+text+quote))
}

// shown is a value as vLLM's validation library shows it.
func shown(raw json.RawMessage) string {
	var v any
	_ = json.Unmarshal(raw, &v) // it was decoded before, as a part of the body
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return map[bool]string{true: "True", false: "False"}[v]
	case string:
		return clip.Bytes(v, 100)
	case []any:
		return fmt.Sprintf("<list of %d items>", len(v))
	case map[string]any:
		return fmt.Sprintf("<dict of %d items>", len(v))
	}
	return string(raw)
}

// wrongType is a value of the wrong type; kind and msg are what the validation library calls that.
func wrongType(loc, kind, msg string, raw json.RawMessage) *failure {
	return invalid(loc, fmt.Sprintf("{'type': '%s', 'loc': '%s', 'msg': '%s', 'input': '%s'}", kind, loc, msg,
		shown(raw)))
}

// has reports whether a field is there and not null.
func (o object) has(field string) bool {
	raw := o[field]
	return len(raw) > 0 && !bytes.Equal(raw, []byte("null"))
}

// decode reads a field into v, if it is there. kind and msg are what the validation library calls a wrong type.
func (o object) decode(field string, v any, kind, msg string) *failure {
	if !o.has(field) || json.Unmarshal(o[field], v) == nil {
		return nil
	}
	return wrongType("body."+field, kind, msg, o[field])
}

// whole reads an integer. True and false count as 1 and 0, a float without a fraction and a string of digits as theirs.
func (o object) whole(field string, v *int) *failure {
	if !o.has(field) || json.Unmarshal(o[field], v) == nil {
		return nil
	}
	const valid = "Input should be a valid integer"
	var text string
	var number float64
	var truth bool
	switch raw := o[field]; {
	case json.Unmarshal(raw, &truth) == nil:
		if *v = 0; truth {
			*v = 1
		}
	case json.Unmarshal(raw, &text) == nil:
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			return wrongType("body."+field, "int_parsing", valid+", unable to parse string as an integer", raw)
		}
		*v = n
	case json.Unmarshal(raw, &number) == nil && number == math.Trunc(number) && math.Abs(number) < math.MaxInt32:
		*v = int(number)
	case json.Unmarshal(raw, &number) == nil:
		return wrongType("body."+field, "int_from_float", valid+", got a number with a fractional part", raw)
	default:
		return wrongType("body."+field, "int_type", valid, raw)
	}
	return nil
}

// flag reads a boolean, in the words that vLLM takes for one.
func (o object) flag(field string, v *bool) *failure {
	if !o.has(field) {
		return nil
	}
	switch raw := o[field]; strings.ToLower(shown(raw)) {
	case "true", "t", "yes", "y", "on", "1", "1.0":
		*v = true
	case "false", "f", "no", "n", "off", "0", "0.0":
		*v = false
	default:
		if raw[0] == '[' || raw[0] == '{' {
			return wrongType("body."+field, "bool_type", "Input should be a valid boolean", raw)
		}
		return wrongType("body."+field, "bool_parsing", "Input should be a valid boolean, unable to interpret input",
			raw)
	}
	return nil
}

func (o object) text(field string, v *string) *failure {
	return o.decode(field, v, "string_type", "Input should be a valid string")
}

// settings are the parameters that both kinds of request have.
type settings struct {
	model, salt      string
	adapter          string // "" = the base model
	maxTokens        int    // 0 = not said
	minTokens, n     int
	seed             int
	ignoreEnd        bool
	stream           bool
	usage, usageEach bool
}

func (s *Server) readSettings(o object) (settings, *failure) {
	t := settings{n: 1}
	var options object
	checks := []*failure{
		o.text("model", &t.model), o.text("cache_salt", &t.salt),
		o.whole("max_tokens", &t.maxTokens), o.whole("min_tokens", &t.minTokens), o.whole("n", &t.n),
		o.whole("seed", &t.seed),
		o.flag("ignore_eos", &t.ignoreEnd), o.flag("stream", &t.stream),
		o.decode("stream_options", &options, "model_attributes_type",
			"Input should be a valid dictionary or object to extract fields from"),
		options.flag("include_usage", &t.usage).within("stream_options"),
		options.flag("continuous_usage_stats", &t.usageEach).within("stream_options"),
	}
	if o.has("max_completion_tokens") {
		checks = append(checks, o.whole("max_completion_tokens", &t.maxTokens))
	}
	for _, f := range checks {
		if f != nil {
			return t, f
		}
	}
	switch {
	case (o.has("max_tokens") || o.has("max_completion_tokens")) && t.maxTokens < 1:
		return t, badParameter("max_tokens", fmt.Sprintf("max_tokens must be at least 1, got %d.", t.maxTokens),
			t.maxTokens)
	case o.has("stream_options") && !t.stream:
		return t, badRequest("Stream options can only be defined when `stream=True`. (parameter=stream_options)",
			"stream_options")
	case t.n < 1:
		return t, badRequest(fmt.Sprintf("n must be at least 1, got %d.", t.n), "")
	case t.model == "" || t.model == s.cfg.Model:
		t.model = s.cfg.Model
		return t, nil
	case !s.hasAdapter(t.model):
		return t, s.unknownModel(t.model)
	}
	t.adapter = t.model
	return t, nil
}

func badParameter(name, message string, value int) *failure {
	return badRequest(fmt.Sprintf("%s (parameter=%s, value=%d)", message, name, value), name)
}

// sequences makes the engine's requests: for each prompt, n of them.
func (s *Server) sequences(t settings, prompts [][]uint32) ([]batch.Request, *failure) {
	if len(prompts)*t.n > choiceLimit {
		return nil, badParameter("n", fmt.Sprintf("more than %d choices in one request.", choiceLimit), t.n)
	}
	out := make([]batch.Request, 0, len(prompts)*t.n)
	for _, p := range prompts {
		limit, f := s.answerLimit(t, max(len(p), 1))
		if f != nil {
			return nil, f
		}
		if t.minTokens > limit {
			return nil, badRequest(fmt.Sprintf("min_tokens must be less than or equal to max_tokens=%d, got %d.", limit,
				t.minTokens), "")
		}
		for i := range t.n {
			out = append(out, batch.Request{
				Prompt: p, Salt: t.salt, Adapter: t.adapter, MaxTokens: limit, MinTokens: t.minTokens,
				IgnoreEnd: t.ignoreEnd,
				Variant:   uint64(t.seed)<<8 + uint64(i),
			})
		}
	}
	return out, nil
}

// answerLimit is how long the answer to a prompt may become. The messages are vLLM's.
func (s *Server) answerLimit(t settings, prompt int) (int, *failure) {
	context := s.cfg.MaxModelLen
	switch {
	case context == 0 && t.maxTokens > 0:
		return t.maxTokens, nil
	case context == 0:
		return max(s.contextLength()-prompt, 2*s.cfg.AnswerTokens), nil
	case t.maxTokens > context:
		return 0, badParameter("max_tokens", fmt.Sprintf(
			"max_tokens=%d cannot be greater than max_model_len=%d. Please request fewer output tokens.", t.maxTokens,
			context), t.maxTokens)
	case prompt > context:
		return 0, badParameter("input_tokens", fmt.Sprintf(
			"This model's maximum context length is %d tokens. However, your prompt contains at least %d input "+
				"tokens, which exceeds this limit even without any output tokens. Please reduce the length of the "+
				"input prompt.",
			context, context+1), context+1)
	case prompt == context:
		return 0, badParameter("max_tokens", "max_tokens must be at least 1, got 0.", 0)
	case t.maxTokens > 0:
		return min(t.maxTokens, context-prompt), nil
	}
	return context - prompt, nil
}
