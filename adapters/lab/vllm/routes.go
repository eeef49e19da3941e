package vllm

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/lab/vllm/page"
)

// version is the vLLM whose answers these are.
const version = "0.32.0"

// apis are what the engine computes prompts for, by path.
var apis = map[string]api{
	"/v1/chat/completions":   {&chatFormat, (*Server).chatPrompts},
	"/v1/completions":        {&completionFormat, (*Server).completionPrompts},
	"/v1/responses":          {&responsesFormat, (*Server).responsesPrompts},
	"/v1/messages":           {&messagesFormat, (*Server).messagesPrompts},
	"/inference/v1/generate": {&tokensFormat, (*Server).tokensPrompts},
	"/generate":              {&sglangFormat, (*Server).sglangPrompts},
	"/v1/embeddings":         {&embeddingsFormat, (*Server).inputPrompts},
	"/pooling":               {&poolingFormat, (*Server).inputPrompts},
	"/classify":              {&classifyFormat, (*Server).inputPrompts},
	"/v1/classify":           {&classifyFormat, (*Server).inputPrompts},
	"/score":                 {&scoreFormat, (*Server).scorePrompts},
	"/v1/score":              {&scoreFormat, (*Server).scorePrompts},
	"/rerank":                {&rerankFormat, (*Server).rerankPrompts},
	"/v1/rerank":             {&rerankFormat, (*Server).rerankPrompts},
	"/v2/rerank":             {&rerankFormat, (*Server).rerankPrompts},
}

// rendered are the paths of apis whose prompts can be had without an answer, at the same path with /render.
var rendered = []string{"/v1/chat/completions", "/v1/completions", "/v1/messages"}

// table maps path and method to handlers.
func (s *Server) table() map[string]map[string]http.HandlerFunc {
	table := map[string]map[string]http.HandlerFunc{
		"/health":             {"GET": s.onHealth},
		"/ping":               {"GET": onPing, "POST": onPing},
		"/version":            {"GET": onVersion},
		"/load":               {"GET": s.onLoad},
		"/metrics":            {"GET": s.onMetrics},
		"/v1/models":          {"GET": s.onModels},
		"/tokenize":           {"POST": s.onTokenize},
		"/detokenize":         {"POST": s.onDetokenize},
		"/reset_prefix_cache": {"POST": s.onResetPrefixCache},

		"/v1/messages/count_tokens": {"POST": s.onCountTokens},
	}
	for path, api := range apis {
		table[path] = map[string]http.HandlerFunc{"POST": func(w http.ResponseWriter, r *http.Request) {
			s.generate(w, r, api)
		}}
	}
	for _, path := range rendered {
		table[path+"/render"] = map[string]http.HandlerFunc{"POST": func(w http.ResponseWriter, r *http.Request) {
			s.render(w, r, apis[path])
		}}
	}
	if s.cfg.MaxLoRAs > 0 {
		table["/v1/load_lora_adapter"] = map[string]http.HandlerFunc{"POST": s.onLoadLoRA}
		table["/v1/unload_lora_adapter"] = map[string]http.HandlerFunc{"POST": s.onUnloadLoRA}
	}
	s.sleeping(table)
	s.control(table)
	return table
}

// routes serves the table. Errors for other paths and methods are those of vLLM's web framework.
func (s *Server) routes() http.Handler {
	table := s.table()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("x-served-by", s.addr)
		w.Header().Set("x-sim-name", s.cfg.Name)
		w.Header().Set("Server", "signalbox-sim")
		path := r.URL.Path
		if path == "/metrics/" { // there vLLM has the page of the client library
			path = "/metrics"
		}
		methods, known := table[path]
		if id, one := strings.CutPrefix(path, "/v1/models/"); one && id != "" {
			known = true
			methods = map[string]http.HandlerFunc{
				"GET": func(w http.ResponseWriter, _ *http.Request) { s.onModel(w, id) },
			}
		}
		if _, bare := table[strings.TrimSuffix(path, "/")]; !known && bare {
			w.Header().Set("Location", "http://"+r.Host+strings.TrimSuffix(path, "/"))
			w.WriteHeader(http.StatusTemporaryRedirect)
			return
		}
		if !known {
			writeJSON(w, http.StatusNotFound, map[string]string{"detail": "Not Found"})
			return
		}
		handle, allowed := methods[r.Method]
		if !allowed {
			names := make([]string, 0, 2)
			for name := range methods {
				names = append(names, name)
			}
			slices.Sort(names)
			w.Header().Set("Allow", strings.Join(names, ", "))
			writeJSON(w, http.StatusMethodNotAllowed, map[string]string{"detail": "Method Not Allowed"})
			return
		}
		handle(w, r)
	})
}

func onPing(http.ResponseWriter, *http.Request) {}

func onVersion(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"version": version})
}

// failure is an error as vLLM answers it. Its type is the status text for errors found before the engine was asked.
type failure struct {
	status  int
	kind    string // "" = an error of the web framework, which has another form
	message string
	param   string // "" = null
}

func (f *failure) write(w http.ResponseWriter) {
	if f.kind == "" {
		writeJSON(w, f.status, map[string]string{"detail": f.message})
		return
	}
	var param *string
	if f.param != "" {
		param = &f.param
	}
	type inner struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    int     `json:"code"`
	}
	writeJSON(w, f.status, struct {
		Error inner `json:"error"`
	}{inner{f.message, f.kind, param, f.status}})
}

// invalid is a field that does not validate; details are what vLLM's validation library says of it.
func invalid(loc string, details ...string) *failure {
	head := "1 validation error"
	if len(details) > 1 {
		head = fmt.Sprintf("%d validation errors", len(details))
	}
	return &failure{http.StatusBadRequest, "Bad Request", head + ":\n  " + strings.Join(details, "\n  "), loc}
}

// within moves a failure of a field into the field that it is in.
func (f *failure) within(outer string) *failure {
	if f != nil {
		f.message = strings.ReplaceAll(f.message, "body.", "body."+outer+".")
		f.param = strings.Replace(f.param, "body.", "body."+outer+".", 1)
	}
	return f
}

// badRequest is what vLLM finds wrong itself; param "" = null.
func badRequest(message, param string) *failure {
	return &failure{http.StatusBadRequest, "BadRequestError", message, param}
}

// missing is the error that none of these fields is there, in an object of so many others.
func missing(among int, fields ...string) *failure {
	var details []string
	for _, f := range fields {
		details = append(details, fmt.Sprintf(
			"{'type': 'missing', 'loc': 'body.%s', 'msg': 'Field required', 'input': '<dict of %d items>'}", f, among))
	}
	return invalid("body."+fields[0], details...)
}

func (s *Server) unknownModel(name string) *failure {
	return &failure{
		http.StatusNotFound, "NotFoundError",
		fmt.Sprintf("The model `%s` does not exist. Valid aliases: %s.", name, s.cfg.Model), "model",
	}
}

func overloaded() *failure {
	return &failure{
		http.StatusServiceUnavailable, "Service Unavailable",
		"The engine is currently busy and cannot accept new requests. Please try again later or on a different " +
			"instance.", "",
	}
}

// writeJSON answers with v, which is one of our own structs and always encodes. A client that left is not our error.
func writeJSON(w http.ResponseWriter, status int, v any) {
	var body strings.Builder
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	text := strings.TrimSuffix(body.String(), "\n")
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text))
}

func (s *Server) onHealth(w http.ResponseWriter, _ *http.Request) {
	if s.Faults().EngineDead {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (s *Server) onMetrics(w http.ResponseWriter, r *http.Request) {
	wrong := s.Faults()
	if !s.pause(r, time.Duration(wrong.PageDelay)) {
		return
	}
	b := make([]byte, 0, max(48<<10, wrong.PageBytes+64))
	s.mu.Lock()
	s.deliver()
	stats := s.core.Stats()
	if s.asleep { // no step brings the queue up to date
		stats.Running, stats.Waiting, stats.Deferred = 0, 0, 0
	}
	b = s.page.Render(b, page.View{Tally: s.core.Tally(), Stats: stats, LoRAs: s.core.LoRAs(),
		Rejected: s.rejected, Asleep: s.asleep, Level: s.level})
	s.mu.Unlock()
	for i := 0; len(b) < wrong.PageBytes; i++ {
		b = append(strconv.AppendInt(append(b, `sim_padding{n="`...), int64(i), 10), "\"} 0.0\n"...)
	}
	switch wrong.PageBroken {
	case "error":
		internal("Internal server error").write(w)
		return
	case "garbled":
		for i := range b {
			b[i] ^= byte(i*7) | 0x81
		}
	}
	version := "1.0.0"
	if r.URL.Path == "/metrics/" {
		version = "0.0.4"
	}
	w.Header().Set("Content-Type", "text/plain; version="+version+"; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	if wrong.PageBroken == "cut" {
		_, _ = w.Write(b[:len(b)/2])
		panic(http.ErrAbortHandler) // closes the connection before the promised length
	}
	_, _ = w.Write(b) // nothing is left to tell a client that left
}

// pause waits; false = the client has left.
func (s *Server) pause(r *http.Request, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	over := make(chan struct{})
	takeBack := s.cfg.Clock.AfterFunc(d, func() { close(over) })
	select {
	case <-over:
		return true
	case <-r.Context().Done():
		takeBack()
		return false
	}
}

func (s *Server) onLoad(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	load := len(s.answers)
	s.mu.Unlock()
	writeJSON(w, 200, map[string]int{"server_load": load})
}

func (s *Server) onResetPrefixCache(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	s.deliver()
	done := s.core.ResetPrefixCache()
	s.mu.Unlock()
	writeJSON(w, 200, map[string]bool{"success": done})
}
