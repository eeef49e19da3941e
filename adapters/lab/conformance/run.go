package conformance

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	grpcmetadata "google.golang.org/grpc/metadata"

	"github.com/signalbox-epp/signalbox/adapters/lab/exchange"
)

func (o Options) withDefaults() (Options, error) {
	if o.Client == nil || len(o.Endpoints) == 0 {
		return o, errors.New("conformance: a client and at least one endpoint are needed")
	}
	for _, name := range o.Modes {
		if !slices.ContainsFunc(AllModes(), func(m Modes) bool { return m.Name == name }) {
			return o, fmt.Errorf("conformance: no modes %q", name)
		}
	}
	o.Endpoints = slices.Clone(o.Endpoints)
	for i, e := range o.Endpoints {
		address, err := canonical(e)
		if err != nil {
			return o, fmt.Errorf("conformance: endpoint %w", err)
		}
		o.Endpoints[i] = address
	}
	setDefault(&o.Parallel, 8)
	setDefault(&o.Patience, 5*time.Second)
	setDefault(&o.AtOnce, 50*time.Millisecond)
	setDefault(&o.BodyWait, 35*time.Second)
	if o.Report == nil {
		o.Report = func(Result) {}
	}
	return o, nil
}

func setDefault[T ~int | ~int64](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// Connect fills in the clients of an EPP at host:port, and waits until it can be reached. The certificate may be any.
func (o *Options) Connect(ctx context.Context, addr string, plaintext bool) (hangUp func(), err error) {
	credential := credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if plaintext {
		credential = insecure.NewCredentials()
	}
	mark := func(ctx context.Context, d *grpc.StreamDesc, c *grpc.ClientConn, method string, open grpc.Streamer,
		with ...grpc.CallOption) (grpc.ClientStream, error) {
		if o.Mark != "" {
			ctx = grpcmetadata.AppendToOutgoingContext(ctx, o.Mark, "1")
		}
		return open(ctx, d, c, method, with...)
	}
	var conns []*grpc.ClientConn
	hangUp = func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}
	for _, window := range []int32{1 << 20, 64 << 10} {
		conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(credential),
			grpc.WithNoProxy(), grpc.WithStreamInterceptor(mark),
			grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(64<<20),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)))
		if err != nil {
			hangUp()
			return nil, err
		}
		conns = append(conns, conn)
	}
	o.Client, o.Health = extprocv3.NewExternalProcessorClient(conns[0]), healthpb.NewHealthClient(conns[0])
	o.Narrow = extprocv3.NewExternalProcessorClient(conns[1])
	conns[0].Connect()
	for state := conns[0].GetState(); state != connectivity.Ready; state = conns[0].GetState() {
		if state == connectivity.TransientFailure || !conns[0].WaitForStateChange(ctx, state) {
			hangUp()
			return nil, fmt.Errorf("no connection to %s (plaintext %v)", addr, plaintext)
		}
	}
	return hangUp, nil
}

// job is a check in one mode.
type job struct {
	check *Check
	modes Modes
}

// Run plays the table against an EPP, and returns a result for each check in each mode in which it makes sense. What
// looks at the whole EPP comes last, alone. It ends early only with ctx; what was not played by then is not run.
func Run(ctx context.Context, o Options) ([]Result, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	crowd, alone := o.jobs()
	r := &runner{Options: o, salt: time.Now().UnixNano()}
	work := make(chan job)
	var workers sync.WaitGroup
	for range o.Parallel {
		workers.Go(func() {
			for j := range work {
				r.play(ctx, j)
			}
		})
	}
	for _, j := range crowd {
		work <- j
	}
	close(work)
	workers.Wait()
	for _, j := range alone {
		r.play(ctx, j)
	}
	rank := map[string]int{}
	for i, m := range AllModes() {
		rank[m.Name] = i
	}
	slices.SortFunc(r.results, func(a, b Result) int {
		return (rank[a.Mode]-rank[b.Mode])*1000 + a.Check.Number - b.Check.Number
	})
	return r.results, nil
}

// jobs are what is asked for: what may run together, and what must run alone.
func (o *Options) jobs() (crowd, alone []job) {
	for _, m := range AllModes() {
		if o.Modes != nil && !slices.Contains(o.Modes, m.Name) {
			continue
		}
		for _, c := range Table() {
			if !c.makesSense(m) || o.Checks != nil && !slices.Contains(o.Checks, c.Number) {
				continue
			}
			if c.alone {
				alone = append(alone, job{c, m})
			} else {
				crowd = append(crowd, job{c, m})
			}
		}
	}
	return crowd, alone
}

type runner struct {
	Options
	salt    int64
	numbers atomic.Int64
	mu      sync.Mutex
	results []Result
}

// notRun says why a check was not played.
type notRun string

func (n notRun) Error() string { return string(n) }

func (r *runner) play(ctx context.Context, j job) {
	began := time.Now()
	t := &checkRun{runner: r, ctx: ctx, modes: j.modes, client: r.Client}
	err := ctx.Err()
	if err == nil {
		err = j.check.run(t)
	} else {
		err = notRun("interrupted")
	}
	t.close()
	result := Result{Check: j.check, Mode: j.modes.Name, Figures: t.figures, Took: time.Since(began)}
	var not notRun
	switch {
	case errors.As(err, &not):
		result.Outcome, result.Reason = NotRun, string(not)
	case err != nil:
		result.Outcome, result.Reason = Failed, strings.Join(strings.Fields(err.Error()), " ")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results = append(r.results, result)
	r.Report(result)
}

// checkRun is one run of a check, in one mode.
type checkRun struct {
	*runner
	ctx    context.Context
	modes  Modes
	client extprocv3.ExternalProcessorClient // that further calls are made with
	plain  bool                              // further calls send header values in value
	calls  []*call

	limits  exchange.Limits // of the proxy's header maps in further calls
	figures string          // what was measured
}

// impatient turns to the EPP whose deadline for bodies comes sooner, if there is one.
func (t *checkRun) impatient() {
	if t.Inside.Impatient != nil {
		t.client = t.Inside.Impatient
	}
}

func (t *checkRun) close() {
	for _, c := range t.calls {
		c.stream.Close()
	}
	for _, c := range t.calls {
		<-c.over
	}
}

// soon takes times in up to three rounds, and wants the median of one of them within a limit: one answer that comes
// late on a busy machine says nothing about the EPP.
func (t *checkRun) soon(what string, limit time.Duration, round func() ([]time.Duration, error)) error {
	for range 3 {
		took, err := round()
		if err != nil {
			return err
		}
		slices.Sort(took)
		median := took[len(took)/2]
		if t.figures = fmt.Sprintf("median %v of %d %s", median.Round(time.Microsecond), len(took),
			what); median <= limit {
			return nil
		}
	}
	return fmt.Errorf("%s, want %v at most", t.figures, limit)
}

// headersAnswers times the answer to the headers of 21 requests, which then leave.
func (t *checkRun) headersAnswers() ([]time.Duration, error) {
	var all []time.Duration
	for range 21 {
		c, err := t.open(t.ctx)
		if err != nil {
			return nil, err
		}
		began := time.Now()
		if err := c.head(exchange.Request, t.chat()); err != nil {
			return nil, err
		}
		all = append(all, time.Since(began))
		c.reset()
	}
	return all, nil
}

func (t *checkRun) config() exchange.Config {
	return exchange.Config{
		Request: t.modes.Request, Response: t.modes.Response, WithoutWaiting: t.modes.WithoutWaiting,
		Observe:     t.modes.Observe,
		PlainValues: t.plain, Limits: t.limits,
	}
}

// eventually waits for what the EPP does on its own, 2 ms between looks.
func (t *checkRun) eventually(what string, holds func() bool) error {
	deadline := time.NewTimer(t.Patience)
	defer deadline.Stop()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for !holds() {
		select {
		case <-look.C:
		case <-deadline.C:
			return fmt.Errorf("not within %v: %s", t.Patience, what)
		case <-t.ctx.Done():
			return notRun("interrupted")
		}
	}
	return nil
}
