package vllm

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
)

// embeddingSize is how many numbers an embedding has, unless the request names another count.
const embeddingSize = 32

// embeddingsFormat and rerankFormat are APIs that compute prompts and generate nothing. Each input is a sequence of the
// engine, of one token.
var (
	embeddingsFormat = format{idPrefix: "embd-", spoken: &spoken{whole: func(s *Server, a *answer) string {
		size, list := embeddingSize, []string{}
		_ = a.asked.whole("dimensions", &size) // it was checked
		for i, c := range a.choices {
			list = append(list, fmt.Sprintf(`{"index":%d,"object":"embedding","embedding":%s}`, i,
				embedding(c.key, min(max(size, 1), 4096), string(a.asked["encoding_format"]) == `"base64"`)))
		}
		return fmt.Sprintf(`{"id":%s,"object":"list","created":%d,"model":%s,"data":[%s],"usage":%s}`, a.id, a.created,
			a.model, strings.Join(list, ","), a.pooledUsage())
	}}}
	rerankFormat = format{idPrefix: "rerank-", spoken: &spoken{whole: func(_ *Server, a *answer) string {
		type result struct {
			Index    int `json:"index"`
			Document struct {
				Text string `json:"text"`
			} `json:"document"`
			Score float64 `json:"relevance_score"`
		}
		var all []result
		texts, top := documents(a.asked), 0
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
	delete(o, "max_completion_tokens")
	delete(o, "stream")
}

func (s *Server) onEmbeddings(w http.ResponseWriter, r *http.Request) {
	s.generate(w, r, &embeddingsFormat, func(o object) ([][]uint32, *failure) {
		pooledOnly(o)
		size := 1
		if f := o.whole("dimensions", &size); f != nil {
			return nil, f
		}
		if !o.has("input") {
			return nil, missing(len(o), "input")
		}
		return s.completionPrompts(object{"prompt": o["input"]})
	})
}

// documents are the texts that are ranked: each is a text, or an object with one.
func documents(o object) (texts []string) {
	var list []json.RawMessage
	if json.Unmarshal(o["documents"], &list) != nil {
		return nil
	}
	for _, raw := range list {
		var p part
		var text string
		if json.Unmarshal(raw, &text) != nil && json.Unmarshal(raw, &p) == nil && p.Text != nil {
			text = *p.Text
		}
		texts = append(texts, text)
	}
	return texts
}

func (s *Server) onRerank(w http.ResponseWriter, r *http.Request) {
	s.generate(w, r, &rerankFormat, func(o object) ([][]uint32, *failure) {
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
		var prompts [][]uint32
		for _, text := range documents(o) {
			pair := s.tokens.Special(s.tokens.Encode(nil, query), "<|document|>")
			prompts = append(prompts, s.tokens.Encode(pair, text))
		}
		return prompts, nil
	})
}
