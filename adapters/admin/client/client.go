// Package client asks the metrics port of a running Signalbox for its debug pages, for the commands that show them.
// Each of its errors is one line and names the flag of those commands that is at fault. Errors of TLS, which has
// several flags, are left to the caller.
//
// It never changes anything in that process. It never shows text of another server than a Signalbox without making it
// harmless for a terminal.
package client

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/admin"
)

// Port is a metrics port, and what it asks of its clients.
type Port struct {
	Addr  string      // http://host:port; the scheme may be left out
	Token string      // of --metrics-token-file, or of a Kubernetes account; "" = none is shown
	TLS   *tls.Config // for an https address; nil = the system's authorities
}

// Page is a debug page.
type Page struct {
	Path   []string   // elements of the path behind /debug, as they are before they are escaped
	Values url.Values // of the query, without format
}

const (
	askWithin    = 10 * time.Second
	pageBytes    = 64 << 20 // longest page that is decoded
	failureBytes = 64 << 10 // longest body of an error that is read
	wants        = "--addr wants the address of Signalbox's metrics port, which is 9090 unless its flags say otherwise"
)

// Client asks one port. It may be used again and again, for one page at a time.
type Client struct {
	base  *url.URL
	token string
	http  http.Client
}

// New returns a client of a port. Close it at the end.
func New(p Port) (*Client, error) {
	addr := p.Addr
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	base, err := url.Parse(addr)
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") {
		return nil, fmt.Errorf("--addr: got %q, want http://host:port; %s", p.Addr, wants)
	}
	return &Client{
		base: &url.URL{Scheme: base.Scheme, Host: base.Host}, token: p.Token,
		http: http.Client{
			Transport: &http.Transport{ // without a proxy: the port is in the same network
				TLSClientConfig: p.TLS, TLSHandshakeTimeout: askWithin,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Close ends connections that are idle.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Addr returns the address as a URL.
func (c *Client) Addr() string { return c.base.String() }

// Text writes a page in its form for a terminal.
func (c *Client) Text(ctx context.Context, p Page, w io.Writer) error {
	return c.ask(ctx, p, "text", func(body io.Reader) error { _, err := io.Copy(w, body); return err })
}

// JSON writes a page in its form for programs.
func (c *Client) JSON(ctx context.Context, p Page, w io.Writer) error {
	return c.ask(ctx, p, "json", func(body io.Reader) error { _, err := io.Copy(w, body); return err })
}

// Decode reads the JSON form of a page into v.
func (c *Client) Decode(ctx context.Context, p Page, v any) error {
	return c.ask(ctx, p, "json",
		func(body io.Reader) error { return json.NewDecoder(io.LimitReader(body, pageBytes)).Decode(v) })
}

// ask calls take with the body of the answer, if that is the page in the form that was asked for.
func (c *Client) ask(ctx context.Context, p Page, format string, take func(io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url(p, format), nil)
	if err != nil {
		return fmt.Errorf("--addr: %w", err)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.unreachable(err)
	}
	defer resp.Body.Close()
	if err := c.check(resp, format); err != nil {
		return err
	}
	if err := take(resp.Body); err != nil {
		return fmt.Errorf("answer of %s: %w", c.base.Host, err)
	}
	return nil
}

func (c *Client) url(p Page, format string) string {
	path := "/debug"
	for _, element := range p.Path {
		escaped := url.PathEscape(element)
		if strings.Trim(escaped, ".") == "" { // dots alone are steps in a path
			escaped = strings.ReplaceAll(escaped, ".", "%2E")
		}
		path += "/" + escaped
	}
	values := url.Values{"format": {format}}
	for name, list := range p.Values {
		values[name] = list
	}
	return c.base.String() + path + "?" + values.Encode()
}

// unreachable returns why there is no answer.
func (c *Client) unreachable(err error) error {
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err // without the URL, which the texts below name
	}
	host := c.base.Host
	var name *net.DNSError
	switch {
	case strings.Contains(err.Error(), "HTTP response to HTTPS client"):
		return fmt.Errorf("%s speaks HTTP without TLS: use --addr http://%s", host, host)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nothing listens on %s: is Signalbox running? %s", host, wants)
	case errors.As(err, &name):
		return fmt.Errorf("%s has no address: %w; %s", host, err, wants)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s did not answer in time; %s", host, wants)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), strings.Contains(err.Error(), "malformed HTTP"):
		return fmt.Errorf("%s does not speak HTTP as a metrics port does; %s: %w", host, wants, err)
	}
	return fmt.Errorf("%s cannot be asked: %w", host, err)
}

// failure is the body of every error of a debug page.
type failure struct {
	Error string `json:"error"`
	Code  string `json:"code"`
}

// check returns why an answer is not the one that was asked for; nil = it is.
func (c *Client) check(resp *http.Response, format string) error {
	host := c.base.Host
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode == http.StatusOK {
		if want := map[string]string{"json": "application/json", "text": "text/plain"}[format]; kind != want {
			return fmt.Errorf("%s answers, but not as Signalbox does (%s instead of %s); %s", host, admin.Clean(kind),
				want, wants)
		}
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, failureBytes))
	var f failure
	switch {
	case strings.Contains(string(body), "HTTP request to an HTTPS server"): // as Go's servers answer
		return fmt.Errorf("%s speaks TLS: use --addr https://%s", host, host)
	case err != nil || kind != "application/json" || json.Unmarshal(body, &f) != nil || f.Error == "":
		return fmt.Errorf("%s answers HTTP %d, but not as Signalbox does; %s", host, resp.StatusCode, wants)
	case resp.StatusCode == http.StatusUnauthorized && c.token == "":
		return fmt.Errorf("%s wants a token (HTTP 401): --token-file names a file with one of those in "+
			"--metrics-token-file, or with that of a Kubernetes account", host)
	case resp.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("%s does not take the token of --token-file (HTTP 401): want one of those in "+
			"--metrics-token-file, or that of a Kubernetes account", host)
	}
	return errors.New(admin.Clean(f.Error))
}
