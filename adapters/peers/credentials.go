package peers

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// Credentials wraps the credentials of a server whose connections the table shall know. A handshake is the one place
// where grpc-go lets a server see a connection begin, pass something to each of its streams, and see its end, at no
// cost for each message. A stats.Handler, the other way, is called for every message.
func (t *Table) Credentials(inner credentials.TransportCredentials) credentials.TransportCredentials {
	return watching{inner, t}
}

type watching struct {
	credentials.TransportCredentials
	table *Table
}

// ServerHandshake makes a connection known to the table.
func (w watching) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := w.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return conn, info, err
	}
	c := w.table.connected(conn.RemoteAddr())
	return &watchedConn{Conn: conn, known: c}, authInfo{info, c, namesOf(info)}, nil
}

// Clone copies the credentials: connections of the copy are known to the same table.
func (w watching) Clone() credentials.TransportCredentials {
	return watching{w.TransportCredentials.Clone(), w.table}
}

// watchedConn tells the table when the connection ends.
type watchedConn struct {
	net.Conn
	known *Connection
	once  sync.Once
}

// Close closes the connection. The transport calls it however the connection ends.
func (c *watchedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.known.end)
	return err
}

// authInfo carries the connection to the context of each of its streams.
type authInfo struct {
	credentials.AuthInfo
	connection *Connection
	names      []string
}

// namesOf returns the names in the certificate that a peer has shown, if a handshake has verified it: its URIs, its DNS
// names and its common name.
func namesOf(info credentials.AuthInfo) []string {
	of, ok := info.(credentials.TLSInfo)
	if !ok || len(of.State.VerifiedChains) == 0 {
		return nil
	}
	leaf := of.State.VerifiedChains[0][0]
	var names []string
	for _, uri := range leaf.URIs {
		names = append(names, uri.String())
	}
	names = append(names, leaf.DNSNames...)
	if common := leaf.Subject.CommonName; common != "" {
		names = append(names, common)
	}
	return names
}

// Of returns the connection of a stream's context; nil if it did not come by a server with a table's Credentials.
func Of(ctx context.Context) *Connection { return infoOf(ctx).connection }

// Certified returns the names in the verified certificate of the peer that opened a stream: its URIs, its DNS names and
// its common name. There are none if it has shown no certificate, or if none was asked for.
func Certified(ctx context.Context) []string { return infoOf(ctx).names }

// infoOf returns what the handshake has left for a stream; the zero value if there was none with a table's Credentials.
func infoOf(ctx context.Context) (info authInfo) {
	if p, ok := peer.FromContext(ctx); ok {
		info, _ = p.AuthInfo.(authInfo)
	}
	return info
}
