package vllm

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/signalbox-epp/signalbox/adapters/lab/vllm/batch"
)

// sglangFormat is SGLang's own API, /generate. Each event of its streams has all that was said up to then.
var sglangFormat = format{idMember: "rid", maxTokens: 128, spoken: &spoken{
	whole: func(s *Server, a *answer) string {
		list := make([]string, 0, len(a.choices))
		for i := range a.choices {
			list = append(list, s.sglangOutput(a, i, a.choices[i].generated))
		}
		if !a.asked.hasPrompts() && len(list) == 1 {
			return list[0]
		}
		return "[" + strings.Join(list, ",") + "]"
	},
	word: func(s *Server, a *answer, i int) string { return data(s.sglangOutput(a, i, a.choices[i].sent)) },
	end: func(s *Server, a *answer) string {
		return a.untold(func(i int) string { return data(s.sglangOutput(a, i, a.choices[i].sent)) }) + streamDone
	},
	failed: func(f *failure) string { return fmt.Sprintf(`{"error":{"message":%s}}`, quoted(f.message)) },
}}

// sglangOutput is what choice i says up to before a token. Those of a list have their index in streams.
func (s *Server) sglangOutput(a *answer, i, to int) string {
	c := &a.choices[i]
	index, reason, latency := "", "null", ""
	if a.each.stream && (len(a.choices) > 1 || a.asked.hasPrompts()) {
		index = fmt.Sprintf(`,"index":%d`, i)
	}
	if c.tells(to) {
		reason = sglangReason(c)
		latency = fmt.Sprintf(`,"e2e_latency":%v`, s.cfg.Clock.Now().Sub(a.came).Seconds())
	}
	return fmt.Sprintf(`{"text":%s,"output_ids":%s,"meta_info":{"id":%s,"finish_reason":%s,"prompt_tokens":%d,`+
		`"weight_version":"default","total_retractions":0,"completion_tokens":%d,"cached_tokens":%d%s}%s}`,
		quoted(s.words(c, 0, to)), s.tokenIDs(c, 0, to), a.id, reason, c.prompt, to, c.cached, latency, index)
}

func sglangReason(c *choice) string {
	switch c.ended {
	case batch.Length:
		return fmt.Sprintf(`{"type":"length","length":%d}`, c.generated)
	case batch.Abort:
		return `{"type":"abort","message":"Aborted","status_code":null,"err_type":null}`
	case batch.Running, batch.Stop:
	}
	return `{"type":"stop","matched":2}` // the token that ends a text
}

// hasPrompts reports whether a request of SGLang has a list of prompts. It was read before.
func (o object) hasPrompts() bool {
	raw := o["text"]
	if !o.has("text") {
		raw = bytes.TrimLeft(o["input_ids"][1:], " \t\r\n")
	}
	return raw[0] == '['
}

// sglangPrompts reads a request of SGLang, whose adapter and salt have names of their own.
func (s *Server) sglangPrompts(o object) ([][]uint32, *failure) {
	prompt := o["text"]
	if !o.has("text") {
		prompt = o["input_ids"]
	}
	if len(prompt) == 0 || string(prompt) == "null" {
		return nil, badRequest("Either text, input_ids or input_embeds should be provided.", "")
	}
	for to, from := range map[string]string{"model": "lora_path", "cache_salt": "extra_key"} {
		if o.has(from) {
			o[to] = o[from]
		}
	}
	delete(o, "stream_options")
	names := [...]string{"max_new_tokens", "min_new_tokens", "n", "sampling_seed", "ignore_eos"}
	if f := o.sampling(names); f != nil {
		return nil, f
	}
	return s.completionPrompts(object{"prompt": prompt})
}
