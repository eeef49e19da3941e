package vllm

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/signalbox-epp/signalbox/adapters/lab/vllm/batch"
)

// tokensFormat is vLLM's API of tokens in and tokens out, /inference/v1/generate.
var tokensFormat = format{idPrefix: "generate-tokens-", idMember: "request_id", maxTokens: 16, spoken: &spoken{
	whole: func(s *Server, a *answer) string {
		list := make([]string, 0, len(a.choices))
		for i := range a.choices {
			list = append(list, s.tokensChoice(a, i, 0, a.choices[i].generated))
		}
		return fmt.Sprintf(`{"request_id":%s,"model":%s,"created":%d,"usage":%s,"prompt_logprobs":null,`+
			`"prompt_token_id_logprobs":null,"prompt_token_ids":null,"mm_placeholders":null,"metrics":null,`+
			`"kv_transfer_params":null,"ec_transfer_params":null,"output_mode":"tokens","choices":[%s]}`, a.id, a.model,
			a.came.Unix(), s.usage(nil, a, a.choices), strings.Join(list, ","))
	},
	word: func(s *Server, a *answer, i int) string {
		return a.tokensEvent("null", s.tokensChoice(a, i, a.choices[i].sent-1, a.choices[i].sent))
	},
	end: func(s *Server, a *answer) string {
		text := a.untold(func(i int) string {
			return a.tokensEvent("null", s.tokensChoice(a, i, a.choices[i].sent, a.choices[i].sent))
		})
		if a.each.usage {
			text += a.tokensEvent(string(s.finalUsage(nil, a)), "")
		}
		return text + streamDone
	},
}}

func (a *answer) tokensEvent(usage, choices string) string {
	return data(fmt.Sprintf(`{"request_id":%s,"usage":%s,"output_mode":"tokens","choices":[%s]}`, a.id, usage, choices))
}

// tokensChoice is choice i with its tokens from one to before another.
func (s *Server) tokensChoice(a *answer, i, from, to int) string {
	c := &a.choices[i]
	reason, versions := "null", "null"
	if c.tells(to) {
		reason = `"` + c.ended.String() + `"`
		versions = fmt.Sprintf(`[{"version":"default","start":0,"end":%d}]`, c.generated)
	}
	return fmt.Sprintf(`{"index":%d,"finish_reason":%s,"stop_reason":null,"token_ids":%s,"routed_experts":null,`+
		`"sampling_mask":null,"weight_versions":%s,"logprobs":null}`, i, reason, s.tokenIDs(c, from, to), versions)
}

// tokenIDs are the tokens of a choice from one to before another, as JSON.
func (s *Server) tokenIDs(c *choice, from, to int) []byte {
	b, _ := json.Marshal(s.tokens.Encode([]uint32{}, s.words(c, from, to))) // numbers always encode
	return b
}

// tells reports whether what is written of a choice up to a token has its end, which is told then.
func (c *choice) tells(to int) bool {
	c.closed = to == c.generated && c.ended != batch.Running
	return c.closed
}

// untold are the events of choices whose end the stream has not told: they were aborted after their last word.
func (a *answer) untold(event func(i int) string) (text string) {
	for i := range a.choices {
		if !a.choices[i].closed {
			text += event(i)
		}
	}
	return text
}

// sampled are the parameters that an engine's own API has in an object, under the names of the other APIs.
var sampled = [...]string{"max_tokens", "min_tokens", "n", "seed", "ignore_eos"}

// sampling moves the parameters of a request to where the other APIs have them; names are theirs, in the order of
// sampled.
func (o object) sampling(names [len(sampled)]string) *failure {
	const field = "sampling_params"
	var params object
	if f := o.decode(field, &params, "dict_type", "Input should be a valid dictionary"); f != nil {
		return f
	}
	delete(o, "max_completion_tokens")
	for i, name := range sampled {
		delete(o, name)
		check := params.whole(names[i], new(int))
		if name == "ignore_eos" {
			check = params.flag(name, new(bool))
		}
		if check != nil {
			return check.within(field)
		}
		if params.has(names[i]) {
			o[name] = params[names[i]]
		}
	}
	return nil
}

// tokensPrompts reads a request of tokens.
func (s *Server) tokensPrompts(o object) ([][]uint32, *failure) {
	var absent []string
	for _, field := range []string{"token_ids", "sampling_params"} {
		if !o.has(field) {
			absent = append(absent, field)
		}
	}
	if len(absent) > 0 {
		return nil, missing(len(o), absent...)
	}
	tokens, f := o.tokens("token_ids")
	if f == nil {
		f = o.sampling(sampled)
	}
	return [][]uint32{tokens}, f
}

// tokens reads a list of tokens.
func (o object) tokens(field string) (tokens []uint32, f *failure) {
	var list []json.RawMessage
	if f := o.decode(field, &list, "list_type", "Input should be a valid list"); f != nil {
		return nil, f
	}
	for i, raw := range list {
		var token uint32
		if json.Unmarshal(raw, &token) != nil {
			loc := fmt.Sprintf("body.%s.%d", field, i)
			return nil, wrongType(loc, "int_type", "Input should be a valid integer", raw)
		}
		tokens = append(tokens, token)
	}
	return tokens, nil
}
