package secrets

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/files"
)

// Config says how one port uses TLS. The zero value is a self-signed certificate, and takes every client.
type Config struct {
	Directory string // with tls.crt and tls.key; "" = a self-signed certificate
	ClientCA  string // file of the authorities that sign clients' certificates; "" = clients need none
	Flags     Flags
	Protocols []string // of ALPN, in the order of preference
	Parameters
}

// Flags name the files in problems; "" = problems name the file alone.
type Flags struct{ Directory, ClientCA string }

// Parameters are what a handshake may agree on.
type Parameters struct {
	MinVersion uint16   // tls.VersionTLS12 or later; 0 = that
	Suites     []uint16 // of TLS 1.2: those of 1.3 cannot be chosen; nil = those that HTTP/2 allows
}

// Port is the TLS of a port whose files may be replaced at any time.
type Port struct {
	Config
	own      *tls.Certificate // self-signed; nil = that of the directory is used
	sources  []source
	files    *files.Follower[*inForce]
	tell     func(error) // Watch.Validity; may be nil
	reported string      // what it was told last
}

// inForce holds what was read from the files of a port.
type inForce struct {
	tls         *tls.Config
	authorities []*x509.Certificate // of clients
}

// NewPort reads the files, which must be good, and follows them until Close.
func NewPort(c Config, w Watch) (*Port, error) {
	p := &Port{Config: c, tell: w.Validity}
	if c.Directory != "" {
		for _, name := range []string{"tls.crt", "tls.key"} {
			p.sources = append(p.sources, source{filepath.Join(c.Directory, name), c.Flags.Directory})
		}
	} else {
		own, err := selfSigned(time.Now())
		if err != nil {
			return nil, fmt.Errorf("self-signed certificate: %w", err)
		}
		p.own = &own
	}
	if c.ClientCA != "" {
		p.sources = append(p.sources, source{c.ClientCA, c.Flags.ClientCA})
	}
	var err error
	p.files, err = follow(p.sources, p.parse, p.reportValidity, w)
	if err != nil {
		return nil, err
	}
	p.reportValidity()
	p.files.Start()
	return p, nil
}

// Server returns the configuration of a listener. Each handshake uses the last good contents of the files.
func (p *Port) Server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: p.Protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return p.files.Value().tls, nil },
	}
}

// Certificate returns the certificate in force.
func (p *Port) Certificate() *x509.Certificate { return p.files.Value().tls.Certificates[0].Leaf }

// Close ends the watch over the files. What was read last stays in force.
func (p *Port) Close() { p.files.Close() }

func (p *Port) parse(texts [][]byte) (*inForce, error) {
	if err := p.checkForm(texts); err != nil {
		return nil, err
	}
	c := &tls.Config{
		MinVersion: max(p.MinVersion, tls.VersionTLS12), CipherSuites: p.Suites, NextProtos: p.Protocols,
		// With a session ticket a client would pass although its authority was replaced since.
		SessionTicketsDisabled: p.ClientCA != "",
	}
	if c.CipherSuites == nil {
		c.CipherSuites = suitesForHTTP2()
	}
	if p.own != nil {
		c.Certificates = []tls.Certificate{*p.own}
	} else {
		pair, err := tls.X509KeyPair(texts[0], texts[1])
		if err != nil {
			return nil, p.sources[0].fault(fmt.Errorf("tls.crt and tls.key in %s: %w", p.Directory, err))
		}
		c.Certificates = []tls.Certificate{pair}
	}
	if p.ClientCA == "" {
		return &inForce{tls: c}, nil
	}
	authorities := certificates(texts[len(texts)-1]) // the clients' authorities are the last source
	if len(authorities) == 0 {
		return nil, p.sources[len(p.sources)-1].fault(fmt.Errorf("%s: no certificate in it", p.ClientCA))
	}
	c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	for _, a := range authorities {
		c.ClientCAs.AddCert(a)
	}
	return &inForce{c, authorities}, nil
}

// certificates returns the certificates of PEM text, without those that cannot be read.
func certificates(text []byte) []*x509.Certificate {
	var all []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			continue
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, c)
		}
	}
	return all
}

// reportValidity reports, once, certificates in force that are outside their validity. Peers that verify them refuse a
// handshake, and nothing else would say why.
func (p *Port) reportValidity() {
	if p.tell == nil {
		return
	}
	err := p.validity(p.files.Value(), time.Now())
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != p.reported {
		p.reported = text
		p.tell(err)
	}
}

// validity returns what is wrong with the dates of the certificates in force. Of the authorities of clients one valid
// one is enough.
func (p *Port) validity(f *inForce, now time.Time) error {
	var problems []error
	if err := checkDates(f.tls.Certificates[0].Leaf, now); err != nil && p.own == nil {
		problems = append(problems, p.sources[0].fault(fmt.Errorf("%s: %w", p.sources[0].path, err)))
	}
	var invalid []error
	for _, a := range f.authorities {
		if err := checkDates(a, now); err != nil {
			invalid = append(invalid, p.sources[len(p.sources)-1].fault(fmt.Errorf("%s: %w", p.ClientCA, err)))
		}
	}
	if len(invalid) == len(f.authorities) {
		problems = append(problems, invalid...)
	}
	return errors.Join(problems...)
}

// checkDates returns what is wrong with the dates of a certificate.
func checkDates(c *x509.Certificate, now time.Time) error {
	switch {
	case now.After(c.NotAfter):
		return fmt.Errorf("the certificate of %q expired at %s", c.Subject, c.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(c.NotBefore):
		return fmt.Errorf("the certificate of %q is not valid before %s", c.Subject,
			c.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

// checkForm returns what is wrong with the form of all files.
func (p *Port) checkForm(texts [][]byte) error {
	var problems []error
	for i, text := range texts {
		if err := checkPEM(text); err != nil {
			problems = append(problems, p.sources[i].fault(fmt.Errorf("%s: %w", p.sources[i].path, err)))
		}
	}
	return errors.Join(problems...)
}

// suitesForHTTP2 returns the suites that Go considers safe, without those that RFC 9113, appendix A, forbids: all that
// have no authenticated encryption.
func suitesForHTTP2() []uint16 {
	var all []uint16
	for _, s := range tls.CipherSuites() {
		if strings.Contains(s.Name, "_GCM_") || strings.Contains(s.Name, "_CHACHA20_") {
			all = append(all, s.ID)
		}
	}
	return all
}

var versions = map[string]uint16{"": 0, "VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13}

// ParseVersion reads the name of a version of TLS, as Go has it. "" is 0, the default.
func ParseVersion(name string) (uint16, error) {
	if v, ok := versions[name]; ok {
		return v, nil
	}
	if name == "VersionTLS10" || name == "VersionTLS11" {
		return 0, fmt.Errorf("got %s, want VersionTLS12 or VersionTLS13: HTTP/2 takes no older one", name)
	}
	return 0, fmt.Errorf("got %q, want VersionTLS12 or VersionTLS13", name)
}

// ParseSuites reads names of cipher suites, as Go has them. No name is nil, the default.
func ParseSuites(names []string) ([]uint16, error) {
	var ids []uint16
	for _, name := range names {
		hasName := func(s *tls.CipherSuite) bool { return s.Name == name }
		i := slices.IndexFunc(tls.CipherSuites(), hasName)
		switch {
		case i >= 0:
			ids = append(ids, tls.CipherSuites()[i].ID)
		case slices.ContainsFunc(tls.InsecureCipherSuites(), hasName):
			return nil, fmt.Errorf("%s is not safe", name)
		default:
			return nil, fmt.Errorf("got %q, want names like TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", name)
		}
	}
	return ids, nil
}

// selfSigned returns a certificate that proves nothing: it is for proxies that do not verify the endpoint picker.
func selfSigned(now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "signalbox", Organization: []string{"self-signed"}},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0), DNSNames: []string{"signalbox", "localhost"},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}
