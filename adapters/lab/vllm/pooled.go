package vllm

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
)

// embeddingSize is how many numbers an embedding has, unless the request names another count.
const embeddingSize = 32

// APIs that compute prompts and generate nothing. Each input is a sequence of the engine, of one token.
var (
	embeddingsFormat = pooledList("embd-", func(a *answer, c *choice) string {
		return `"object":"embedding","embedding":` + a.embedding(c)
	})
	poolingFormat = pooledList("pooling-", func(a *answer, c *choice) string {
		return `"object":"pooling","data":` + a.embedding(c)
	})
	scoreFormat = pooledList("score-", func(_ *answer, c *choice) string {
		return fmt.Sprintf(`"object":"score","score":%v`, share(c.key, 0))
	})
	classifyFormat = pooledList("classify-", func(_ *answer, c *choice) string {
		first := share(c.key, 0)
		label := 0
		if first < 0.5 {
			label = 1
		}
		return fmt.Sprintf(`"label":"LABEL_%d","probs":[%v,%v],"num_classes":2`, label, first, 1-first)
	})
	rerankFormat = format{idPrefix: "rerank-", spoken: &spoken{whole: func(_ *Server, a *answer) string {
		type result struct {
			Index    int `json:"index"`
			Document struct {
				Text string `json:"text"`
			} `json:"document"`
			Score float64 `json:"relevance_score"`
		}
		var all []result
		texts, top := texts(a.asked["documents"]), 0
		_ = a.asked.whole("top_n", &top) // it was checked
		for i, c := range a.choices {
			one := result{Index: i, Score: share(c.key, 0)}
			one.Document.Text = texts[i]
			all = append(all, one)
		}
		slices.SortStableFunc(all, func(a, b result) int { return int(math.Copysign(1, b.Score-a.Score)) })
		if top > 0 {
			all = all[:min(top, len(all))]
		}
		list, err := json.Marshal(all)
		if err != nil {
			return "null"
		}
		return fmt.Sprintf(`{"id":%s,"model":%s,"usage":%s,"results":%s}`, a.id, a.model, a.pooledUsage(), list)
	}}}
)

// pooledList is an API whose answer is a list with an object for each input: its index, and these members.
func pooledList(idPrefix string, members func(*answer, *choice) string) format {
	return format{idPrefix: idPrefix, spoken: &spoken{whole: func(_ *Server, a *answer) string {
		list := make([]string, 0, len(a.choices))
		for i := range a.choices {
			list = append(list, fmt.Sprintf(`{"index":%d,%s}`, i, members(a, &a.choices[i])))
		}
		return fmt.Sprintf(`{"id":%s,"object":"list","created":%d,"model":%s,"data":[%s],"usage":%s}`, a.id,
			a.came.Unix(), a.model, strings.Join(list, ","), a.pooledUsage())
	}}}
}

// embedding is that of an input, in the size and encoding that were asked for.
func (a *answer) embedding(c *choice) string {
	size := embeddingSize
	_ = a.asked.whole("dimensions", &size) // it was checked
	return embedding(c.key, min(max(size, 1), 4096), string(a.asked["encoding_format"]) == `"base64"`)
}

func (a *answer) pooledUsage() string {
	return fmt.Sprintf(`{"prompt_tokens":%d,"total_tokens":%[1]d,"completion_tokens":0,"prompt_tokens_details":null}`,
		a.promptTokens)
}

// share is a number from 0 to 1 that follows from a key.
func share(key uint64, i int) float64 {
	key = (key + uint64(i)) * 0x9e3779b97f4a7c15
	return float64((key^key>>29)>>11) / (1 << 53)
}

// embedding is a vector of length 1 that follows from a key, as JSON: a list, or the base64 of 32-bit floats.
func embedding(key uint64, size int, asBase64 bool) string {
	numbers, square := make([]float64, size), 0.0
	for i := range numbers {
		numbers[i] = share(key, i+1) - 0.5
		square += numbers[i] * numbers[i]
	}
	var packed []byte
	var list []string
	for _, n := range numbers {
		unit := float32(n / math.Sqrt(max(square, 1e-9)))
		packed = binary.LittleEndian.AppendUint32(packed, math.Float32bits(unit))
		list = append(list, fmt.Sprint(unit))
	}
	if asBase64 {
		return `"` + base64.StdEncoding.EncodeToString(packed) + `"`
	}
	return "[" + strings.Join(list, ",") + "]"
}

// pooledOnly makes a request one for a single token that is not streamed.
func pooledOnly(o object) {
	o["max_tokens"] = json.RawMessage("1")
	for _, name := range []string{"max_completion_tokens", "min_tokens", "n", "stream", "stream_options"} {
		delete(o, name)
	}
}

// inputPrompts reads what is embedded, classified or pooled: as a completion, or as a chat.
func (s *Server) inputPrompts(o object) ([][]uint32, *failure) {
	pooledOnly(o)
	size := 1
	if f := o.whole("dimensions", &size); f != nil {
		return nil, f
	}
	if o.has("messages") {
		return s.chatPrompts(o)
	}
	if !o.has("input") {
		return nil, missing(len(o), "input")
	}
	return s.completionPrompts(object{"prompt": o["input"]})
}

// texts are those of what is scored or ranked: one or a list, and each a text, or an object with one.
func texts(raw json.RawMessage) (all []string) {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		list = []json.RawMessage{raw}
	}
	for _, raw := range list {
		var p part
		var text string
		if json.Unmarshal(raw, &text) != nil && json.Unmarshal(raw, &p) == nil && p.Text != nil {
			text = *p.Text
		}
		all = append(all, text)
	}
	return all
}

// pairs are the prompts of texts that are held against each other: one against each, or each against its own.
func (s *Server) pairs(left, right []string) (prompts [][]uint32) {
	for i, text := range right {
		pair := s.tokens.Special(s.tokens.Encode(nil, left[i%len(left)]), "<|document|>")
		prompts = append(prompts, s.tokens.Encode(pair, text))
	}
	return prompts
}

func (s *Server) rerankPrompts(o object) ([][]uint32, *failure) {
	pooledOnly(o)
	var query string
	top := 0
	for _, f := range []*failure{o.text("query", &query), o.whole("top_n", &top)} {
		if f != nil {
			return nil, f
		}
	}
	if !o.has("query") {
		return nil, missing(len(o), "query", "documents")
	}
	if _, f := o.items("documents"); f != nil {
		return nil, f
	}
	return s.pairs([]string{query}, texts(o["documents"])), nil
}

// scored are the names that both sides of a score may have.
var scored = [][2]string{{"queries", "documents"}, {"queries", "items"}, {"data_1", "data_2"}, {"text_1", "text_2"}}

func (s *Server) scorePrompts(o object) ([][]uint32, *failure) {
	pooledOnly(o)
	for _, names := range scored {
		if !o.has(names[0]) || !o.has(names[1]) {
			continue
		}
		left, right := texts(o[names[0]]), texts(o[names[1]])
		switch {
		case len(left) > 1 && len(left) != len(right):
			return nil, badRequest("Input lengths must be either 1:1, 1:N or N:N", "")
		case len(left) == 0:
			return nil, badRequest("At least one text element must be given", "")
		case len(right) == 0:
			return nil, badRequest("At least one text_pair element must be given", "")
		}
		return s.pairs(left, right), nil
	}
	return nil, missing(len(o), scored[0][:]...)
}
