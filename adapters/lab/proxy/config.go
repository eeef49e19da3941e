package proxy

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

// Config describes a proxy. Only EPP is required.
type Config struct {
	EPP       string // host:port of the EPP's gRPC server
	Plaintext bool   // no TLS towards the EPP

	// TLS is used towards the EPP unless Plaintext; nil accepts any certificate. ALPN h2 is always offered.
	TLS *tls.Config

	// Request and Response are the modes of both directions; the zero value of both means FULL_DUPLEX_STREAMED in both.
	Request, Response exchange.Mode

	// FailureModeAllow lets a request go on to a fallback endpoint when the EPP fails and has seen no body of it.
	FailureModeAllow bool
	// Fallback lists the endpoints (address:port) used without a pick. Nil means none.
	Fallback func() []string
	// Subset returns the endpoints a request is limited to, nil for no limit. Nil means no limit.
	Subset func(*http.Request) []string

	// StatusOnError is the reply when the EPP fails and the request cannot go on. Default 503;
	// Envoy's own default is 500.
	StatusOnError int
	// MessageTimeout bounds the wait for a headers answer in directions that are not full duplex. Default 200 ms.
	// The reply is 504.
	MessageTimeout time.Duration

	Transport        http.RoundTripper // towards the model servers; default: HTTP/1.1, 1 s to connect, no proxies
	MaxAttempts      int               // endpoints tried per request, default 3
	ChunkBytes       int               // largest body chunk sent to the EPP, default 16 KiB
	RetryBufferBytes int64             // request body kept for a further attempt, default 1 MiB
	// unread body per direction at which the EPP's answers are no longer read, default 4 MiB
	PendingBytes    int64
	Limits          exchange.Limits // of header maps the EPP changes
	MaxMessageBytes int             // largest message taken from the EPP, default unlimited, as Envoy

	// OnViolation is told of every answer that broke a rule. It is called from many goroutines.
	// Nil means that nothing is told.
	OnViolation func(exchange.Violation)
}

func (c *Config) setDefaults() {
	if c.Request == (exchange.Mode{}) && c.Response == (exchange.Mode{}) {
		c.Request, c.Response = exchange.FullDuplex(), exchange.FullDuplex()
	}
	if c.Fallback == nil {
		c.Fallback = func() []string { return nil }
	}
	if c.Subset == nil {
		c.Subset = func(*http.Request) []string { return nil }
	}
	if c.StatusOnError == 0 {
		c.StatusOnError = http.StatusServiceUnavailable
	}
	if c.MessageTimeout == 0 {
		c.MessageTimeout = 200 * time.Millisecond
	}
	if c.MaxAttempts == 0 {
		c.MaxAttempts = 3
	}
	if c.ChunkBytes == 0 {
		c.ChunkBytes = 16 << 10
	}
	if c.RetryBufferBytes == 0 {
		c.RetryBufferBytes = 1 << 20
	}
	if c.PendingBytes == 0 {
		c.PendingBytes = 4 << 20
	}
	if c.MaxMessageBytes == 0 {
		c.MaxMessageBytes = math.MaxInt32
	}
	if c.OnViolation == nil {
		c.OnViolation = func(exchange.Violation) {}
	}
}

func (c *Config) validate() error {
	var problems []error
	if c.EPP == "" {
		problems = append(problems, errors.New("EPP: address is empty"))
	}
	if c.Request.SkipHeaders {
		problems = append(problems, errors.New("request direction: headers must be sent"))
	}
	if c.Response.SkipHeaders && c.Response.Body != exchange.None {
		problems = append(problems, errors.New("response direction: a body needs its headers"))
	}
	for i, m := range []exchange.Mode{c.Request, c.Response} {
		if m.Body != exchange.Duplex && (m.Body != exchange.None || m.Trailers) {
			problems = append(problems, fmt.Errorf("%v direction: body mode %s with trailers %v: want "+
				"FULL_DUPLEX_STREAMED, or NONE without trailers",
				exchange.Direction(i), m.Body, m.Trailers))
		}
	}
	if c.ChunkBytes < 1 {
		problems = append(problems, fmt.Errorf("ChunkBytes: got %d, want 1 or more", c.ChunkBytes))
	}
	directions := exchange.Config{Request: c.Request, Response: c.Response}
	return errors.Join(append(problems, directions.Validate())...)
}

// connect makes the gRPC connection to the EPP; it is dialled with the first stream.
func connect(c *Config) (*grpc.ClientConn, error) {
	credential := insecure.NewCredentials()
	if !c.Plaintext {
		// the EPP's certificate is self-signed unless the caller says otherwise
		config := &tls.Config{InsecureSkipVerify: true}
		if c.TLS != nil {
			config = c.TLS.Clone()
		}
		config.NextProtos = []string{"h2"}
		credential = credentials.NewTLS(config)
	}
	// A dead EPP is tried again within a second, so that a restart is noticed at once.
	retry := backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}
	return grpc.NewClient("passthrough:///"+c.EPP,
		grpc.WithTransportCredentials(credential),
		grpc.WithNoProxy(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: time.Second}),
		grpc.WithInitialWindowSize(1<<20),
		grpc.WithInitialConnWindowSize(16<<20),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(c.MaxMessageBytes)),
	)
}

func defaultTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: time.Second}
	return &http.Transport{
		DialContext:         dialer.DialContext,
		MaxIdleConnsPerHost: 256,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true, // bodies pass as they are
		WriteBufferSize:     32 << 10,
	}
}
