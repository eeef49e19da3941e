package modelserver

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"
)

// trust says which servers are believed, and what they are shown.
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

// filesAge is the time for which files of certificates are not looked at again. Whoever renews one does so long before
// the old one is void.
const filesAge = 10 * time.Second

// clients holds a client for each set of files that pages name. A set that cannot be read does not displace one that
// could.
type clients struct {
	mu   sync.Mutex
	open map[trust]*client
}

// client is that of one set of files.
type client struct {
	*http.Client
	looked time.Time
	stamps string // of the files as they were read
}

// of returns the client for a set of files.
func (c *clients) of(t trust, cfg Config, now time.Time) (*http.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.open[t]
	if old != nil && now.Sub(old.looked) < filesAge {
		return old.Client, nil
	}
	stamps, err := stampsOf(t.files())
	if old != nil && (err != nil || stamps == old.stamps) {
		old.looked = now
		return old.Client, nil
	}
	if err != nil {
		return nil, err
	}
	config, err := t.load()
	switch {
	case err == nil:
	case old != nil:
		old.looked = now
		return old.Client, nil
	default:
		return nil, err
	}
	if old != nil {
		old.CloseIdleConnections()
	}
	if c.open == nil {
		c.open = map[trust]*client{}
	}
	fresh := &client{Client: newClient(cfg, config), looked: now, stamps: stamps}
	c.open[t] = fresh
	return fresh.Client, nil
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

// close closes connections that are not in use.
func (c *clients) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.open {
		k.CloseIdleConnections()
	}
}
