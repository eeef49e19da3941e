package vllm

import (
	"fmt"
	"io"
	"net/http"
	"slices"
)

// adapter is a loaded LoRA adapter.
type adapter struct{ name, path string }

func (s *Server) hasAdapter(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.findAdapter(name) >= 0
}

// findAdapter returns an index, or -1. The caller holds the lock.
func (s *Server) findAdapter(name string) int {
	return slices.IndexFunc(s.adapters, func(a adapter) bool { return a.name == name })
}

// contextLength is what the server says of its context: without a limit, the size of its KV cache.
func (s *Server) contextLength() int {
	if s.cfg.MaxModelLen > 0 {
		return s.cfg.MaxModelLen
	}
	return s.cfg.KVBlocks * s.cfg.BlockTokens
}

type modelCard struct {
	ID          string       `json:"id"`
	Object      string       `json:"object"`
	Created     int64        `json:"created"`
	OwnedBy     string       `json:"owned_by"`
	Root        string       `json:"root"`
	Parent      *string      `json:"parent"`
	MaxModelLen *int         `json:"max_model_len"`
	Permission  []permission `json:"permission"`
}

type permission struct {
	ID                 string  `json:"id"`
	Object             string  `json:"object"`
	Created            int64   `json:"created"`
	AllowCreateEngine  bool    `json:"allow_create_engine"`
	AllowSampling      bool    `json:"allow_sampling"`
	AllowLogprobs      bool    `json:"allow_logprobs"`
	AllowSearchIndices bool    `json:"allow_search_indices"`
	AllowView          bool    `json:"allow_view"`
	AllowFineTuning    bool    `json:"allow_fine_tuning"`
	Organization       string  `json:"organization"`
	Group              *string `json:"group"`
	IsBlocking         bool    `json:"is_blocking"`
}

// cards are the models, the base model first.
func (s *Server) cards() []modelCard {
	s.mu.Lock()
	adapters := slices.Clone(s.adapters)
	s.mu.Unlock()
	now := s.cfg.Clock.Now().Unix()
	card := func(id, root string) modelCard {
		return modelCard{ID: id, Object: "model", Created: now, OwnedBy: "vllm", Root: root, Permission: []permission{{
			ID: "modelperm-" + s.nextID(), Object: "model_permission", Created: now,
			AllowSampling: true, AllowLogprobs: true, AllowView: true, Organization: "*",
		}}}
	}
	base, context := card(s.cfg.Model, s.cfg.Model), s.contextLength()
	base.MaxModelLen = &context
	cards := []modelCard{base}
	for _, a := range adapters {
		c := card(a.name, a.path)
		c.Parent = &s.cfg.Model
		cards = append(cards, c)
	}
	return cards
}

func (s *Server) onModels(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, 200, struct {
		Object string      `json:"object"`
		Data   []modelCard `json:"data"`
	}{"list", s.cards()})
}

func (s *Server) onLoadLoRA(w http.ResponseWriter, r *http.Request) {
	var name, path string
	var inPlace bool
	o, f := readObject(w, r)
	for _, next := range []func() *failure{
		func() *failure { return o.text("lora_name", &name) },
		func() *failure { return o.text("lora_path", &path) },
		func() *failure { return o.flag("load_inplace", &inPlace) },
	} {
		if f == nil {
			f = next()
		}
	}
	for _, field := range []string{"lora_name", "lora_path"} {
		if f == nil && !o.has(field) {
			f = missing(len(o), field)
		}
	}
	if f == nil && (name == "" || path == "") {
		f = invalidUser("Both 'lora_name' and 'lora_path' must be provided.")
	}
	if f == nil {
		f = s.addAdapter(adapter{name, path}, inPlace)
	}
	answerLoRA(w, f, fmt.Sprintf("Success: LoRA adapter '%s' added successfully.", name))
}

func (s *Server) addAdapter(a adapter, inPlace bool) *failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.findAdapter(a.name)
	switch {
	case a.name == s.cfg.Model:
		return invalidUser(fmt.Sprintf("The lora adapter '%s' conflicts with a served base model.", a.name))
	case i >= 0 && !inPlace:
		return invalidUser(fmt.Sprintf(
			"The lora adapter '%s' has already been loaded. If you want to load the adapter in place, set "+
				"'load_inplace' to True.", a.name))
	case i >= 0:
		s.adapters[i] = a
	default:
		s.adapters = append(s.adapters, a)
	}
	return nil
}

// onUnloadLoRA takes an adapter off the list; sequences that have it go on.
func (s *Server) onUnloadLoRA(w http.ResponseWriter, r *http.Request) {
	var name string
	o, f := readObject(w, r)
	if f == nil {
		f = o.text("lora_name", &name)
	}
	if f == nil && !o.has("lora_name") {
		f = missing(len(o), "lora_name")
	}
	if f == nil && name == "" {
		f = invalidUser("'lora_name' needs to be provided to unload a LoRA adapter.")
	}
	if f == nil {
		f = s.dropAdapter(name)
	}
	answerLoRA(w, f, fmt.Sprintf("Success: LoRA adapter '%s' removed successfully.", name))
}

func (s *Server) dropAdapter(name string) *failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.findAdapter(name)
	if i < 0 {
		return &failure{http.StatusNotFound, "NotFoundError", fmt.Sprintf("The lora adapter '%s' cannot be found.",
			name), ""}
	}
	s.adapters = slices.Delete(s.adapters, i, i+1)
	return nil
}

func invalidUser(message string) *failure {
	return &failure{http.StatusBadRequest, "InvalidUserInput", message, ""}
}

// answerLoRA answers with text that has no content type, as vLLM does.
func answerLoRA(w http.ResponseWriter, f *failure, done string) {
	if f != nil {
		f.write(w)
		return
	}
	w.Header()["Content-Type"] = nil
	_, _ = io.WriteString(w, done)
}
