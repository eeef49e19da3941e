package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"path/filepath"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// credentials are those of the ext_proc port: the given certificate, a self-signed one, or none.
func (s *server) credentials() (credentials.TransportCredentials, error) {
	if !s.opts.secure {
		return insecure.NewCredentials(), nil
	}
	cert, err := s.certificate()
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
	}), nil
}

func (s *server) certificate() (tls.Certificate, error) {
	if s.opts.certPath == "" {
		return selfSigned(time.Now())
	}
	c, err := tls.LoadX509KeyPair(filepath.Join(s.opts.certPath, "tls.crt"), filepath.Join(s.opts.certPath, "tls.key"))
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("--cert-path: %w", err)
	}
	return c, nil
}

// selfSigned makes a certificate that proves nothing: it is for proxies that do not verify the endpoint picker.
func selfSigned(now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("self-signed certificate: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("self-signed certificate: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "signalbox", Organization: []string{"self-signed"}},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0), DNSNames: []string{"signalbox", "localhost"},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("self-signed certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
