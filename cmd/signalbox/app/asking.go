package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/signalbox-epp/signalbox/adapters/admin/client"
)

// portFlags holds the flags of every command that asks a running Signalbox: where its metrics port is, and the token
// and certificates that the port wants.
type portFlags struct {
	addr, token, authority, certPath string
}

func (p *portFlags) register(f *pflag.FlagSet) {
	f.StringVar(&p.addr, "addr", "http://127.0.0.1:9090", "metrics port of the running signalbox")
	f.StringVar(&p.token, "token-file", "", "file with a token that the metrics port takes, in its first line: one of "+
		"--metrics-token-file, or of a Kubernetes account with the right to get the page")
	f.StringVar(&p.authority, "ca-file", "",
		"file of the CA that signed the certificate of an https address; empty is the system's")
	f.StringVar(&p.certPath, "cert-path", "", "directory with tls.crt and tls.key that --metrics-client-ca-file wants")
}

// client returns a client of the port, with the token and certificates that the flags name.
func (p *portFlags) client() (*client.Client, error) {
	port := client.Port{Addr: p.addr, TLS: &tls.Config{MinVersion: tls.VersionTLS12}}
	if p.token != "" {
		text, err := os.ReadFile(filepath.Clean(p.token))
		if err != nil {
			return nil, fmt.Errorf("--token-file: %w", err)
		}
		first, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
		port.Token = strings.TrimSpace(first)
	}
	if p.authority != "" {
		text, err := os.ReadFile(filepath.Clean(p.authority))
		if err != nil {
			return nil, fmt.Errorf("--ca-file: %w", err)
		}
		port.TLS.RootCAs = x509.NewCertPool()
		if !port.TLS.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--ca-file: %s: no certificate in it", p.authority)
		}
	}
	if p.certPath != "" {
		pair, err := tls.LoadX509KeyPair(filepath.Join(p.certPath, "tls.crt"), filepath.Join(p.certPath, "tls.key"))
		if err != nil {
			return nil, fmt.Errorf("--cert-path: %w", err)
		}
		port.TLS.Certificates = []tls.Certificate{pair}
	}
	return client.New(port)
}

// ask calls take with a client of the port, and names the flag at fault if the handshake fails.
func (p *portFlags) ask(take func(*client.Client) error) error {
	c, err := p.client()
	if err != nil {
		return err
	}
	defer c.Close()
	return p.withFlag(take(c))
}

// withFlag returns an error as it is, or, if it is a failed handshake, with the flag that can mend it.
func (p *portFlags) withFlag(err error) error {
	var unverified *tls.CertificateVerificationError
	var misnamed x509.HostnameError
	switch {
	case err == nil:
	case errors.As(err, &misnamed):
		return fmt.Errorf("--addr: %w", err)
	case errors.As(err, &unverified) && p.authority == "":
		return fmt.Errorf("--ca-file: want the CA that signed the certificate of the port: %w", err)
	case errors.As(err, &unverified):
		return fmt.Errorf("--ca-file %s: %w", p.authority, err)
	case strings.Contains(err.Error(), "remote error: tls:") && p.certPath == "":
		return fmt.Errorf("--cert-path: want a certificate that the port's --metrics-client-ca-file signed: %w", err)
	case strings.Contains(err.Error(), "remote error: tls:"):
		return fmt.Errorf("--cert-path %s: %w", p.certPath, err)
	}
	return err
}

// printPage prints a page as text or JSON.
func (p *portFlags) printPage(ctx context.Context, w io.Writer, asJSON bool, page client.Page) error {
	return p.ask(func(c *client.Client) error {
		if asJSON {
			return c.JSON(ctx, page, w)
		}
		return c.Text(ctx, page, w)
	})
}

// completionTimeout is the longest time that a shell waits for names.
const completionTimeout = time.Second

// completeFrom completes a flag or an argument with names from a page of the running Signalbox. If none answers, the
// shell offers nothing.
func completeFrom[Page any](p *portFlags, page client.Page, names func(*Page) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		got := new(Page)
		if err := p.ask(func(c *client.Client) error { return c.Decode(ctx, page, got) }); err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(got), cobra.ShellCompDirectiveNoFileComp
	}
}
