package peers

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"

	"github.com/signalbox-epp/signalbox/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// asking is a health service that asks by the connection of each call.
type asking struct {
	*health.Server
	seen chan *Connection
}

func (a asking) Check(ctx context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	c := Of(ctx)
	if c != nil {
		c.Asked(false)
	}
	if p, _ := peer.FromContext(ctx); p.AuthInfo.AuthType() == "" {
		c = nil // what the inner credentials said is lost
	}
	a.seen <- c
	return a.Server.Check(ctx, r)
}

// selfSigned are credentials for 127.0.0.1, of a server and of a client that trusts it.
func selfSigned(t *testing.T) (server, client credentials.TransportCredentials) {
	t.Helper()
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return credentials.NewTLS(&tls.Config{Certificates: s.TLS.Certificates, MinVersion: tls.VersionTLS12}),
		credentials.NewTLS(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})
}

// rig is a table behind a real gRPC server.
type rig struct {
	*Table
	address string
	seen    chan *Connection
	ended   chan messages.ConnectionID
}

func newRig(t *testing.T, server credentials.TransportCredentials) *rig {
	t.Helper()
	r := &rig{seen: make(chan *Connection, 10), ended: make(chan messages.ConnectionID, 10)}
	r.Table = NewTable(Deps{Log: zap.NewNop(), Doubted: func(id messages.ConnectionID) { r.ended <- id }})
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.address = lis.Addr().String()
	s := grpc.NewServer(grpc.Creds(r.Credentials(server).Clone()))
	healthpb.RegisterHealthServer(s, asking{health.NewServer(), r.seen})
	var done sync.WaitGroup
	done.Go(func() { _ = s.Serve(lis) })
	t.Cleanup(done.Wait)
	t.Cleanup(s.Stop)
	return r
}

// ask opens a connection, and gives what two streams on it found.
func (r *rig) ask(t *testing.T, client credentials.TransportCredentials) (*grpc.ClientConn, *Connection) {
	t.Helper()
	conn, err := grpc.NewClient(r.address, grpc.WithTransportCredentials(client))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	var seen [2]*Connection
	for i := range seen {
		if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
		seen[i] = <-r.seen
	}
	if seen[0] == nil || seen[0] != seen[1] || seen[0].host != "127.0.0.1" {
		t.Fatalf("two streams of a connection found %+v and %+v", seen[0], seen[1])
	}
	return conn, seen[0]
}

// Each stream finds its connection, and the table hears of the connection's end, with TLS and without.
func TestStreamsFindTheirConnection(t *testing.T) {
	server, client := selfSigned(t)
	for name, c := range map[string]struct {
		server, client credentials.TransportCredentials
	}{
		"plain": {insecure.NewCredentials(), insecure.NewCredentials()},
		"TLS":   {server, client},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c.server)
			first, one := r.ask(t, c.client)
			_, two := r.ask(t, c.client)
			if one == two || one.ID() == two.ID() {
				t.Errorf("two connections are one: %d", one.ID())
			}
			if v := r.Views(); len(v) != 1 || v[0].Connections != 2 || v[0].Light != 4 {
				t.Errorf("views %+v, want one proxy with 2 connections and 4 requests", v)
			}
			first.Close()
			select {
			case id := <-r.ended:
				if id != one.ID() {
					t.Errorf("the end of %d was told, want of %d", id, one.ID())
				}
			case <-time.After(10 * time.Second):
				t.Fatal("the end of a connection was not told")
			}
			if v := r.Views(); len(v) != 1 || v[0].Connections != 1 || v[0].Light != 4 {
				t.Errorf("views %+v, want one connection less", v)
			}
		})
	}
}

// authority signs certificates of clients.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	return a
}

// sign returns a pair with these names.
func (a *authority) sign(t *testing.T, common string, dns []string, uris ...string) tls.Certificate {
	t.Helper()
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: common}, DNSNames: dns,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, text := range uris {
		uri, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		leaf.URIs = append(leaf.URIs, uri)
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, a.cert, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}
}

// Only what a handshake has verified names a peer: URIs, DNS names and the common name of its certificate.
func TestCertified(t *testing.T) {
	ca := newAuthority(t)
	pool := x509.NewCertPool()
	der, err := x509.CreateCertificate(rand.Reader, ca.cert, ca.cert, &ca.key.PublicKey, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	root, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(root)
	full := ca.sign(t, "envoy", []string{"gw.example", "b.example"}, "spiffe://c/gateway")
	for name, c := range map[string]struct {
		asks tls.ClientAuthType
		show []tls.Certificate
		want []string
	}{
		"all names": {tls.RequireAndVerifyClientCert, []tls.Certificate{full},
			[]string{"spiffe://c/gateway", "gw.example", "b.example", "envoy"}},
		"a common name": {tls.RequireAndVerifyClientCert, []tls.Certificate{ca.sign(t, "envoy", nil)},
			[]string{"envoy"}},
		"not verified":  {tls.RequireAnyClientCert, []tls.Certificate{full}, nil},
		"not asked for": {tls.NoClientCert, []tls.Certificate{full}, nil},
		"not shown":     {tls.VerifyClientCertIfGiven, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			own := ca.sign(t, "server", []string{"signalbox"})
			table := NewTable(Deps{Log: zap.NewNop(), Doubted: func(messages.ConnectionID) {}})
			server := table.Credentials(credentials.NewTLS(&tls.Config{
				Certificates: []tls.Certificate{own}, ClientCAs: pool, ClientAuth: c.asks, MinVersion: tls.VersionTLS13,
			}))
			client := credentials.NewTLS(&tls.Config{
				InsecureSkipVerify: true, Certificates: c.show, MinVersion: tls.VersionTLS13,
			})
			here, there := net.Pipe()
			var done sync.WaitGroup
			done.Go(func() {
				if conn, _, err := client.ClientHandshake(t.Context(), "signalbox", there); err == nil {
					_, _ = conn.Read(make([]byte, 1))
				}
			})
			conn, info, err := server.ServerHandshake(here)
			if err != nil {
				t.Fatal(err)
			}
			got := Certified(peer.NewContext(t.Context(), &peer.Peer{AuthInfo: info}))
			if !slices.Equal(got, c.want) {
				t.Errorf("names %q, want %q", got, c.want)
			}
			_ = conn.Close()
			done.Wait()
		})
	}
	if names := Certified(t.Context()); names != nil {
		t.Errorf("names %q of no peer", names)
	}
}

// A server without the table's credentials knows no connections.
func TestStreamOfAnotherServer(t *testing.T) {
	if Of(t.Context()) != nil || Of(peer.NewContext(t.Context(), &peer.Peer{})) != nil {
		t.Error("a connection where there is none")
	}
	if NewTable(Deps{}).Opened(t.Context()) != nil {
		t.Error("a log where there is no connection")
	}
}
