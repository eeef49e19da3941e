package modelserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime/supervise"
	"github.com/signalbox-epp/signalbox/messages"
)

const (
	idleConnection = 30 * time.Second // longer than the longest interval of fetches, so that connections are kept
	headerBytes    = 64 << 10         // longest headers of a response
	failureBytes   = 200              // longest text that says why there is no page
	largestKept    = 1 << 20          // largest buffer that is used for another page
	redirects      = 3
)

// bodies holds buffers for pages, so that a page of the usual size costs no allocation.
var bodies = sync.Pool{New: func() any { b := make([]byte, 0, 64<<10); return &b }}

var errNoTurn = errors.New("no turn within the timeout: too many fetches at once")

// newClient returns a client that verifies certificates as a configuration says. It keeps connections, asks for no
// compression (model servers do not compress, and unpacking costs), uses no proxy, and follows redirects to the same
// host only.
func newClient(cfg Config, config *tls.Config) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:            (&net.Dialer{Timeout: cfg.Timeout}).DialContext,
			TLSClientConfig:        config,
			TLSHandshakeTimeout:    cfg.Timeout,
			DisableCompression:     true,
			MaxIdleConnsPerHost:    2,
			IdleConnTimeout:        idleConnection,
			MaxResponseHeaderBytes: headerBytes,
		},
		CheckRedirect: func(next *http.Request, before []*http.Request) error {
			if first := before[0].URL; next.URL.Host != first.Host || next.URL.Scheme != first.Scheme {
				return fmt.Errorf("redirect to %s, another host", next.URL.Redacted())
			}
			if len(before) > redirects {
				return fmt.Errorf("more than %d redirects", redirects)
			}
			return nil
		},
	}
}

// get waits for its turn, then reads the whole page of an endpoint into body, within bounds.
func (f *Fetcher) get(page Page, of messages.Address, within *bounds, body *[]byte) error {
	address, err := page.of(of)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(f.ctx, f.cfg.Timeout)
	defer cancel()
	if err := f.turn(ctx, within.turns); err != nil {
		return err
	}
	defer func() { <-within.turns }()
	return f.getFrom(ctx, address, page.trust(), within.bytes, body)
}

// turn waits until there is room in turns, and takes it.
func (f *Fetcher) turn(ctx context.Context, turns chan struct{}) error {
	select {
	case turns <- struct{}{}:
		return nil
	case <-ctx.Done():
		if f.ctx.Err() != nil {
			return f.ctx.Err()
		}
		return errNoTurn
	}
}

// getFrom reads what is at an address into body, within the limit in bytes.
func (f *Fetcher) getFrom(
	ctx context.Context, address string, by trust, limit int64, body *[]byte,
) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "signalbox")
	if req.URL.Scheme != "https" {
		by = trust{}
	}
	client, err := f.client(ctx, by)
	if err != nil {
		return err
	}
	answer, err := client.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		_, _ = io.CopyN(io.Discard, answer.Body, headerBytes) // so that the connection can be used again
		return fmt.Errorf("status %d", answer.StatusCode)
	}
	return readAll(answer.Body, answer.ContentLength, limit, body)
}

// client returns the client that accepts these certificates.
func (f *Fetcher) client(ctx context.Context, by trust) (*http.Client, error) {
	switch {
	case len(by.files()) > 0:
		return f.others.of(ctx, by, f.cfg, time.Now())
	case by.anyCertificate:
		return f.trusting, nil
	}
	return f.verifying, nil
}

// readAll reads from into body, which it overwrites. announced is its length; -1 = it is not known.
func readAll(from io.Reader, announced, limit int64, body *[]byte) error {
	if announced > limit {
		return fmt.Errorf("%d bytes, limit %d", announced, limit)
	}
	b := (*body)[:0]
	if cap(b) > largestKept {
		b = nil
	}
	defer func() { *body = b }()
	// One byte more than announced lets the last Read, which returns io.EOF, find room.
	b = slices.Grow(b, int(announced+1))
	for {
		b = slices.Grow(b, 1)
		n, err := from.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if int64(len(b)) > limit {
			return fmt.Errorf("more than %d bytes, the limit", limit)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("after %d bytes: %w", len(b), err)
		}
	}
}

// reason returns an error as one short line.
func reason(err error) string {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // without the address, which stands wherever this text is shown
	}
	text := []byte(err.Error()) // cut at a byte, for only ASCII stays
	text = text[:min(len(text), failureBytes)]
	for i, c := range text {
		if c < ' ' || c > '~' {
			text[i] = '?'
		}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return "the fetcher was closed"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case len(text) == 0:
		return "unknown"
	}
	return string(text)
}

// trust says which certificates are accepted, and which one is shown.
type trust struct {
	anyCertificate bool
	authorities    string // file of certificates in place of the system's roots; "" = those, or any certificate
	certificate    string // file of the certificate to show; "" = none
	key            string // file of its key
}

func (p Page) trust() trust {
	t := trust{anyCertificate: p.AnyCertificate, authorities: p.CAFile, certificate: p.CertificateFile, key: p.KeyFile}
	if p.AnyCertificate {
		t.authorities = ""
	}
	return t
}

// trusts returns those of all pages.
func (p Pages) trusts() map[trust]bool {
	all := map[trust]bool{p.Metrics.trust(): true, p.Models.trust(): true}
	for _, f := range p.Further {
		all[f.Page.trust()] = true
	}
	return all
}

// files returns the names of the files.
func (t trust) files() (names []string) {
	for _, name := range []string{t.authorities, t.certificate, t.key} {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// load reads the files.
func (t trust) load() (*tls.Config, error) {
	config := &tls.Config{InsecureSkipVerify: t.anyCertificate}
	if t.authorities != "" {
		text, err := os.ReadFile(t.authorities)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s: no certificate in it", t.authorities)
		}
	}
	if t.certificate != "" {
		pair, err := tls.LoadX509KeyPair(t.certificate, t.key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// filesAge is how long files of certificates are not looked at again. A certificate is renewed long before the
// old one is void.
const filesAge = 10 * time.Second

// clients holds a client for each set of files that pages name. A set that cannot be read does not displace one that
// could. Files are read on a goroutine of their own: a mount that hangs holds up the pages that name it, and no others.
type clients struct {
	mu   sync.Mutex
	open map[trust]*client
}

// client is that of one set of files. Its fields are guarded by the mutex of clients.
type client struct {
	http   *http.Client // nil = the files were never read
	looked time.Time
	stamps string // of the files as they were read
	look   *look  // that is under way; nil = none
}

// look is one reading of the files.
type look struct {
	done chan struct{} // closed once err is set
	err  error
}

// of returns the client for a set of files. It waits for the files until ctx ends, or while others wait for them and
// there is a client already, not at all.
func (c *clients) of(ctx context.Context, t trust, cfg Config, now time.Time) (*http.Client, error) {
	c.mu.Lock()
	k := c.open[t]
	if k == nil {
		if c.open == nil {
			c.open = map[trust]*client{}
		}
		k = new(client)
		c.open[t] = k
	}
	if last := k.http; last != nil && (now.Sub(k.looked) < filesAge || k.look != nil) {
		c.mu.Unlock()
		return last, nil
	}
	this := k.look
	if this == nil {
		this = &look{done: make(chan struct{})}
		k.look = this
		stamps := k.stamps
		go func() { // a panic is the error of the look
			_ = supervise.Recover("a look at certificates", func() error { c.read(k, t, stamps, cfg, now); return nil })
		}()
	}
	c.mu.Unlock()
	select {
	case <-this.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("the files of certificates were not read: %w", ctx.Err())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.http == nil {
		return nil, this.err
	}
	return k.http, nil
}

// read reads a set of files, unless they have these stamps, and ends the look that is under way.
func (c *clients) read(k *client, t trust, before string, cfg Config, now time.Time) {
	err := errors.New("reading the files of certificates panicked")
	var fresh *http.Client
	var stamps string
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if fresh != nil {
			if k.http != nil {
				k.http.CloseIdleConnections()
			}
			k.http, k.stamps = fresh, stamps
		}
		k.looked, k.look.err = now, err
		close(k.look.done)
		k.look = nil
	}()
	if stamps, err = stampsOf(t.files()); err != nil || stamps == before {
		return
	}
	var config *tls.Config
	if config, err = t.load(); err == nil {
		fresh = newClient(cfg, config)
	}
}

// stampsOf returns what tells files from their later contents.
func stampsOf(names []string) (stamps string, err error) {
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			return "", err
		}
		stamps += fmt.Sprint(info.ModTime().UnixNano(), info.Size(), ";")
	}
	return stamps, nil
}

// keep drops the clients of sets of files that no page names any more.
func (c *clients) keep(named map[trust]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for t, k := range c.open {
		if !named[t] {
			k.close()
			delete(c.open, t)
		}
	}
}

// close closes connections that are not in use.
func (c *clients) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.open {
		k.close()
	}
}

func (k *client) close() {
	if k.http != nil {
		k.http.CloseIdleConnections()
	}
}
