package admin

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// guard passes on requests of peers that may see debug paths, and refuses all others.
func (h *handler) guard(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if !h.OpenDebug {
			if why := notLocal(r); why != "" {
				fail(w, http.StatusForbidden, "not-loopback", "debug paths answer loopback peers only: "+why)
				return
			}
		}
		next(w, r)
	})
}

// Authenticated asks for an Authorization header that accept takes. The two health paths need none, because probes
// have no token.
func Authenticated(next http.Handler, accept func(authorization string) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" && r.URL.Path != "/readyz" && !accept(r.Header.Get("Authorization")) {
			w.Header().Set("Cache-Control", "no-store")
			w.Header().Set("WWW-Authenticate", `Bearer realm="signalbox"`)
			fail(w, http.StatusUnauthorized, "no-token",
				"want the header Authorization: Bearer, with one of the tokens of this process")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// profiles adds the paths of net/http/pprof, if profiles are shown, for peers that may see debug paths.
func (h *handler) profiles(mux *http.ServeMux) {
	if !h.Profiles {
		return
	}
	mux.Handle("GET /debug/pprof/", h.guard(pprof.Index))
	mux.Handle("GET /debug/pprof/cmdline", h.guard(pprof.Cmdline))
	mux.Handle("GET /debug/pprof/profile", h.guard(pprof.Profile))
	mux.Handle("GET /debug/pprof/symbol", h.guard(pprof.Symbol))
	mux.Handle("POST /debug/pprof/symbol", h.guard(pprof.Symbol)) // go tool pprof uses POST
	mux.Handle("GET /debug/pprof/trace", h.guard(pprof.Trace))
}

// notLocal returns why a request does not count as one from this machine; "" = it does. The peer's address alone is not
// enough: a proxy on this machine passes on requests of others, and a web page's own name may resolve to 127.0.0.1.
func notLocal(r *http.Request) string {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	switch {
	case err != nil || !peer.Addr().IsLoopback():
		return "the peer is " + clean(r.RemoteAddr)
	case r.Header.Get("X-Forwarded-For") != "" || r.Header.Get("Forwarded") != "":
		return "a proxy passed this request on"
	case !localHost(r.Host):
		return "the Host header must be an IP address or localhost"
	}
	return ""
}

// notOurs returns why a request that changes something does not count as one from this machine; "" = it does. A web
// page that a browser on this machine shows may not send one.
func notOurs(r *http.Request) string {
	if why := notLocal(r); why != "" {
		return why
	}
	if r.Header.Get("Origin") != "" {
		return "a web page sent this request"
	}
	return ""
}

func localHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	_, err := netip.ParseAddr(host)
	return err == nil || host == "" || strings.EqualFold(host, "localhost")
}

// wantsJSON reports whether the client asks for JSON. The parameter wins over the header.
func wantsJSON(r *http.Request) bool {
	switch r.URL.Query().Get("format") {
	case "json":
		return true
	case "text":
		return false
	}
	for _, accept := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(accept, ",") {
			kind, _, _ := strings.Cut(part, ";")
			if strings.EqualFold(strings.TrimSpace(kind), "application/json") {
				return true
			}
		}
	}
	return false
}

// failure is the body of every error.
type failure struct {
	Error string `json:"error"`
	Code  string `json:"code"`
}

func fail(w http.ResponseWriter, status int, code, text string) {
	writeJSON(w, status, failure{Error: text, Code: code})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		status = http.StatusInternalServerError
		b.Reset()
		b.WriteString(`{"error": "the answer has no JSON form", "code": "internal"}` + "\n")
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(escapeUnseen(b.Bytes())) // fails only if the client left, and then needs no answer
}

// escapeUnseen writes characters that a terminal would obey or hide as JSON escapes, so that the value stays exact.
// encoding/json does so only for those below U+0020. Such characters can stand only within strings.
func escapeUnseen(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r == '\n' || seen(r):
			out = append(out, text[:n]...)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			out = appendEscape(appendEscape(out, hi), lo)
		default:
			out = appendEscape(out, r)
		}
		text = text[n:]
	}
	return out
}

func appendEscape(out []byte, r rune) []byte {
	hex := strconv.FormatUint(uint64(r), 16)
	return append(append(append(out, '\\', 'u'), "0000"[len(hex):]...), hex...)
}
