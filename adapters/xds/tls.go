package xds

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// TLSFiles are the files of the xDS port's TLS. The zero value is no TLS.
type TLSFiles struct {
	Directory string // with tls.crt and tls.key; "" = no TLS
	ClientCA  string // only proxies whose certificate this authority signed are served; "" = all
}

// Credentials are those of the port. The files are read for each connection, so that they can be replaced at any time; while
// they cannot be read, no proxy can connect, and those that are connected stay.
func (f TLSFiles) Credentials() (credentials.TransportCredentials, error) {
	if f.Directory == "" {
		return insecure.NewCredentials(), nil
	}
	if _, err := f.load(); err != nil {
		return nil, err
	}
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return f.load() },
	}), nil
}

func (f TLSFiles) load() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(filepath.Join(f.Directory, "tls.crt"), filepath.Join(f.Directory, "tls.key"))
	if err != nil {
		return nil, err
	}
	c := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	if f.ClientCA == "" {
		return c, nil
	}
	text, err := os.ReadFile(f.ClientCA)
	if err != nil {
		return nil, err
	}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !c.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: no certificate in it", f.ClientCA)
	}
	return c, nil
}
