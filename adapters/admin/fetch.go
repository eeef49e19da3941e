package admin

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// Question asks the metrics port of a running process for one request.
type Question struct {
	Addr  string      // http://host:port; the scheme may be left out
	ID    string      // ours, or the client's x-request-id
	JSON  bool        // the answer as JSON instead of a page for a terminal
	Token string      // of --metrics-token-file; "" = none is shown
	TLS   *tls.Config // for an https address; nil = the system's authorities
	All   bool        // the page with every endpoint, however many; JSON has them always
}

const (
	fetchWithin  = 10 * time.Second
	failureBytes = 64 << 10 // of an error's body that are read
	meant        = "the address of Signalbox's metrics port is meant (9090 unless its flags say otherwise)"
)

// Fetch writes what became of one request to w: the page of /debug/requests/{id}, or its JSON.
func Fetch(ctx context.Context, addr, id string, asJSON bool, w io.Writer) error {
	return Question{Addr: addr, ID: id, JSON: asJSON}.Fetch(ctx, w)
}

// Fetch asks and writes the answer to w. Its error says what to do about it, and is one line.
func (q Question) Fetch(ctx context.Context, w io.Writer) error {
	at, err := q.url()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, fetchWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return fmt.Errorf("address %q: %w", q.Addr, err)
	}
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: q.TLS} // no proxy: the port is near
	if q.Token != "" {
		req.Header.Set("Authorization", "Bearer "+q.Token)
	}
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return q.unreachable(at, err)
	}
	defer resp.Body.Close()
	if err := q.check(at, resp); err != nil {
		return err
	}
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("answer of %s: %w", at.Host, err)
	}
	return nil
}

func (q Question) url() (*url.URL, error) {
	if strings.TrimSpace(q.ID) == "" {
		return nil, errors.New("no request id is given")
	}
	addr := q.Addr
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	base, err := url.Parse(addr)
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") {
		return nil, fmt.Errorf("address %q: want http://host:port; %s", q.Addr, meant)
	}
	id := url.PathEscape(q.ID)
	if strings.Trim(id, ".") == "" { // dots alone are steps in a path
		id = strings.ReplaceAll(id, ".", "%2E")
	}
	at, err := url.Parse(base.Scheme + "://" + base.Host + "/debug/requests/" + id)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", q.Addr, err)
	}
	values := url.Values{"format": {"text"}}
	if q.JSON {
		values.Set("format", "json")
	}
	if q.All {
		values.Set("all", "true")
	}
	at.RawQuery = values.Encode()
	return at, nil
}

func (q Question) unreachable(at *url.URL, err error) error {
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err // the URL stands in our own words
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nothing listens on %s: is Signalbox running? %s: %w", at.Host, meant, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s did not answer in time; %s: %w", at.Host, meant, err)
	case strings.Contains(err.Error(), "HTTP response to HTTPS client"):
		return fmt.Errorf("%s speaks HTTP without TLS: use http://%s", at.Host, at.Host)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), strings.Contains(err.Error(), "malformed HTTP"):
		return fmt.Errorf("%s does not speak HTTP as a metrics port does; %s: %w", at.Host, meant, err)
	}
	return fmt.Errorf("%s cannot be asked: %w", at.Host, err)
}

// check says why an answer is not the one that was asked for.
func (q Question) check(at *url.URL, resp *http.Response) error {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode == http.StatusOK {
		if want := map[bool]string{true: "application/json", false: "text/plain"}[q.JSON]; kind != want {
			return fmt.Errorf("%s answers, but not as Signalbox does (%s instead of %s); %s", at.Host, clean(kind), want, meant)
		}
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, failureBytes))
	var f failure
	if err != nil || kind != "application/json" || json.Unmarshal(body, &f) != nil || f.Error == "" {
		return fmt.Errorf("%s answers HTTP %d, but not as Signalbox does; %s", at.Host, resp.StatusCode, meant)
	}
	return errors.New(clean(f.Error))
}
