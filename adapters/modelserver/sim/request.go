package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/signalbox-epp/signalbox/adapters/modelserver/sim/batch"
)

const (
	// bodyLimit bounds what one request takes of memory.
	bodyLimit = 64 << 20
	// choiceLimit bounds how many sequences one request may ask for.
	choiceLimit = 128
	// completionTokens is the length of a completion that names none.
	completionTokens = 16
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
		return nil, &failure{http.StatusRequestEntityTooLarge, "Request Entity Too Large", fmt.Sprintf("body over %d bytes", tooLarge.Limit), ""}
	}
	if err != nil {
		return nil, &failure{http.StatusBadRequest, "Bad Request", "There was an error parsing the body", ""}
	}
	var o object
	if err := json.Unmarshal(body, &o); err != nil {
		syntax := new(json.SyntaxError)
		if !errors.As(err, &syntax) {
			return nil, invalid("body", "{'type': 'model_attributes_type', 'loc': 'body', 'msg': 'Input should be a valid dictionary or object to extract fields from'}")
		}
		loc := "body." + strconv.FormatInt(max(syntax.Offset-1, 0), 10)
		return nil, invalid(loc, fmt.Sprintf(
			"{'type': 'json_invalid', 'loc': '%s', 'msg': 'JSON decode error', 'input': '<dict of 0 items>', 'ctx': {'error': '%s'}}", loc, syntax))
	}
	return o, nil
}

// has says whether a field is there and not null.
func (o object) has(field string) bool {
	raw, ok := o[field]
	return ok && !bytes.Equal(raw, []byte("null"))
}

// decode reads a field into v, if it is there. kind and msg are what the validation library calls a wrong type.
func (o object) decode(field string, v any, kind, msg string) *failure {
	if !o.has(field) || json.Unmarshal(o[field], v) == nil {
		return nil
	}
	loc, input := "body."+field, string(o[field])
	if len(input) > 100 {
		input = input[:100]
	}
	return invalid(loc, fmt.Sprintf("{'type': '%s', 'loc': '%s', 'msg': '%s', 'input': '%s'}", kind, loc, msg, strings.Trim(input, `"`)))
}

// whole reads an integer; a string of digits counts as one.
func (o object) whole(field string, v *int) *failure {
	if text := ""; o.has(field) && json.Unmarshal(o[field], &text) == nil {
		n, err := strconv.Atoi(text)
		if err != nil {
			return o.decode(field, v, "int_parsing", "Input should be a valid integer, unable to parse string as an integer")
		}
		*v = n
		return nil
	}
	return o.decode(field, v, "int_type", "Input should be a valid integer")
}

func (o object) flag(field string, v *bool) *failure {
	return o.decode(field, v, "bool_parsing", "Input should be a valid boolean, unable to interpret input")
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
		o.whole("max_tokens", &t.maxTokens), o.whole("min_tokens", &t.minTokens), o.whole("n", &t.n), o.whole("seed", &t.seed),
		o.flag("ignore_eos", &t.ignoreEnd), o.flag("stream", &t.stream),
		o.decode("stream_options", &options, "model_attributes_type", "Input should be a valid dictionary or object to extract fields from"),
		options.flag("include_usage", &t.usage), options.flag("continuous_usage_stats", &t.usageEach),
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
		return t, badParameter("max_tokens", fmt.Sprintf("max_tokens must be at least 1, got %d.", t.maxTokens), t.maxTokens)
	case t.n < 1 || t.n > choiceLimit:
		return t, badParameter("n", fmt.Sprintf("n must be at least 1 and at most %d, got %d.", choiceLimit, t.n), t.n)
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
	return &failure{
		http.StatusBadRequest, "BadRequestError", fmt.Sprintf("%s (parameter=%s, value=%d)", message, name, value), name,
	}
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
		for i := range t.n {
			out = append(out, batch.Request{
				Prompt: p, Salt: t.salt, Adapter: t.adapter, MaxTokens: limit, MinTokens: t.minTokens, IgnoreEnd: t.ignoreEnd,
				Variant: uint64(t.seed)<<8 + uint64(i),
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
			"max_tokens=%d cannot be greater than max_model_len=%d. Please request fewer output tokens.", t.maxTokens, context), t.maxTokens)
	case prompt > context:
		return 0, badParameter("input_tokens", fmt.Sprintf(
			"This model's maximum context length is %d tokens. However, your prompt contains at least %d input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt.",
			context, context+1), context+1)
	case prompt+max(t.maxTokens, 1) > context:
		return 0, badParameter("input_tokens", fmt.Sprintf(
			"This model's maximum context length is %d tokens. However, you requested %d output tokens and your prompt contains %d input tokens. Please reduce the length of the input prompt or the number of requested output tokens.",
			context, t.maxTokens, prompt), prompt)
	case t.maxTokens > 0:
		return t.maxTokens, nil
	}
	return context - prompt, nil
}
