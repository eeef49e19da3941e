package vllm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"
)

// Faults is what a server does wrong on purpose, in the ways real ones do. The zero value is a server without faults.
// Each stays until it is changed; Stalled, Draining and EngineDead end with a restart as well. Rates are parts of the
// requests for completions, 0 to 1, drawn from the server's seed.
type Faults struct {
	// ErrorRate is how many are answered with ErrorStatus.
	ErrorRate float64 `json:"error_rate"`
	// ErrorStatus is 500 to 599. Default 500.
	ErrorStatus int `json:"error_status"`
	// OverloadRate is how many are answered as by a server whose queue is full: 503 without Retry-After.
	OverloadRate float64 `json:"overload_rate"`
	// OverloadInStream answers those of them that are streamed with 200, an event that holds the error, and [DONE]:
	// vLLM does that when many requests come at one moment and pass its door together.
	OverloadInStream bool `json:"overload_in_stream"`
	// StallRate is how many answers stop after StallTokens tokens, without data or close, for as long as the client
	// waits. An answer that is not streamed never begins.
	StallRate float64 `json:"stall_rate"`
	// StallTokens is how many tokens a stream shows before it stalls. Default 0: its headers.
	StallTokens int `json:"stall_tokens"`

	// Stalled holds back every answer, open ones too, for as long as it is set: an engine that hangs, or a vLLM after
	// SIGTERM.
	Stalled bool `json:"stalled"`
	// Draining answers each request for completions 500 while /health stays 200 and open answers end: a vLLM with
	// --shutdown-timeout after SIGTERM.
	Draining bool `json:"draining"`
	// EngineDead ends every open answer: a stream with an event that holds an error and [DONE], others with 500.
	// Requests for completions get 500 and /health 503. A real server is gone a moment later; Restart does that.
	EngineDead bool `json:"engine_dead"`
	// EngineDiesAfterTokens has EngineDead set when so many tokens have been generated. Default 0: never.
	EngineDiesAfterTokens int `json:"engine_dies_after_tokens"`

	// RenderDrift has the chat template begin every prompt with a text of its own, such as the time, so that nothing of
	// it is found in the prefix cache.
	RenderDrift bool `json:"render_drift"`

	// PageDelay is how long the metrics page takes.
	PageDelay Span `json:"page_delay"`
	// PageBytes makes the metrics page at least so long, at most 64 MiB, with series that no reader knows.
	PageBytes int `json:"page_bytes"`
	// PageBroken is "cut" (half a page, then the connection ends), "garbled" (bytes that are no page), "error" (500),
	// or "": the page is whole.
	PageBroken string `json:"page_broken"`

	// RestartEvery has the server restart so often. Default 0: never.
	RestartEvery Span `json:"restart_every"`
	// RestartDown is for how long a restarting server refuses connections.
	RestartDown Span `json:"restart_down"`
}

// Span is a duration that JSON writes as text, such as "1.5s".
type Span time.Duration

// MarshalText writes the duration as Go does.
func (s Span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }

// UnmarshalText reads what time.ParseDuration reads.
func (s *Span) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is no duration, want one such as 1.5s or 200ms", text)
	}
	*s = Span(d)
	return nil
}

const pageBytesLimit = 64 << 20

// ParseFaults reads one JSON object with the fields of Faults; what it leaves out is without fault. A field that does
// not exist is an error, and every field that is out of its range is named.
func ParseFaults(text []byte) (Faults, error) {
	f, d := Faults{}, json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		if errors.Is(err, io.EOF) {
			return Faults{}, errors.New("faults: the text is empty, want a JSON object")
		}
		return Faults{}, explain(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Faults{}, errors.New("faults: something follows the JSON object")
	}
	return f, f.Validate()
}

// explain says of an error of the decoder what a user can mend.
func explain(err error) error {
	var kind *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("faults: the JSON object has no end")
	case errors.As(err, &kind) && kind.Field == "":
		return fmt.Errorf("faults: got %s, want a JSON object such as {\"error_rate\":0.1}", kind.Value)
	case errors.As(err, &kind):
		return fmt.Errorf("faults: %s: got %s, want %s", kind.Field, kind.Value, wanted(kind.Type))
	}
	if field, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
		return fmt.Errorf("faults: unknown field %s; the fields are %s", field, strings.Join(faultFields(), ", "))
	}
	return fmt.Errorf("faults: %w", err)
}

func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number"
	case reflect.Int:
		return "a whole number"
	case reflect.String:
		return "text"
	}
	return `a time such as "1.5s"` // Span
}

func faultFields() []string {
	var names []string
	for f := range reflect.TypeFor[Faults]().Fields() {
		names = append(names, f.Tag.Get("json"))
	}
	return names
}

// Validate names every field that is out of its range.
func (f Faults) Validate() error {
	var errs []error
	bad := func(field, want string, got any) {
		errs = append(errs, fmt.Errorf("faults: %s: got %v, want %s", field, got, want))
	}
	rate := func(field string, x float64) {
		if !(x >= 0 && x <= 1) {
			bad(field, "0 to 1", x)
		}
	}
	span := func(field string, d Span) {
		if d < 0 {
			bad(field, "0s or more", time.Duration(d))
		}
	}
	rate("error_rate", f.ErrorRate)
	rate("overload_rate", f.OverloadRate)
	rate("stall_rate", f.StallRate)
	if f.ErrorStatus != 0 && (f.ErrorStatus < 500 || f.ErrorStatus > 599) {
		bad("error_status", "500 to 599", f.ErrorStatus)
	}
	if f.StallTokens < 0 {
		bad("stall_tokens", "0 or more", f.StallTokens)
	}
	if f.EngineDiesAfterTokens < 0 {
		bad("engine_dies_after_tokens", "0 or more", f.EngineDiesAfterTokens)
	}
	if f.PageBytes < 0 || f.PageBytes > pageBytesLimit {
		bad("page_bytes", fmt.Sprintf("0 to %d", pageBytesLimit), f.PageBytes)
	}
	span("page_delay", f.PageDelay)
	span("restart_every", f.RestartEvery)
	span("restart_down", f.RestartDown)
	switch f.PageBroken {
	case "", "cut", "garbled", "error":
	default:
		bad("page_broken", `"cut", "garbled", "error" or ""`, fmt.Sprintf("%q", f.PageBroken))
	}
	return errors.Join(errs...)
}
