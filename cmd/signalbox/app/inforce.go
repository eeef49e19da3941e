package app

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/signalbox-epp/signalbox"
	"github.com/signalbox-epp/signalbox/adapters/admin"
	"github.com/signalbox-epp/signalbox/adapters/extproc"
	"github.com/signalbox-epp/signalbox/adapters/extproc/trust"
	"github.com/signalbox-epp/signalbox/adapters/files"
	"github.com/signalbox-epp/signalbox/adapters/modelserver"
	"github.com/signalbox-epp/signalbox/adapters/parsers"
	"github.com/signalbox-epp/signalbox/adapters/parsers/modelname"
	"github.com/signalbox-epp/signalbox/adapters/telemetry"
	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/config"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/rewrites"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// source is a text of a configuration, and where it came from.
type source struct {
	name string // as problems have it
	file bool   // it is a file that can be read again
	text []byte // empty for the default configuration
}

func (s source) sum() string {
	sum := sha256.Sum256(s.text)
	return hex.EncodeToString(sum[:])
}

// loaded is a configuration that was read and found good.
type loaded struct {
	*config.Config
	source source
}

// configuration is one that came into force: everything that it says, built. It is immutable. Streams keep it as long
// as they last, and nothing else does once another one is in force.
type configuration struct {
	*loaded
	number   uint64
	since    time.Time
	restored uint64 // the number of the one that it brought back; 0 = none
	picks    *signalbox.Configuration
	streams  extproc.Configuration
	pages    modelserver.Pages
	scraping messages.Scraping
}

// inForce owns the configuration in force. It alone replaces it, one at a time, and only by one that is built whole.
type inForce struct {
	tree     *tree
	plugins  *telemetry.Plugins
	parser   *parsers.Parser // of all configurations that parse: what it decodes at once is bounded for the process
	current  atomic.Pointer[configuration]
	metrics  *reloadMetrics
	follower *files.Follower[files.Text] // nil = the source is no file, or is not followed yet

	mu       sync.Mutex // of all below, and of what stores current
	started  beginning  // what cannot change live stays as it is here
	added    additions
	previous *previous // nil = there is none
	read     []byte    // what the source held when it was read last; nil = it could not be read
	problem  *admin.ConfigurationProblem
}

// beginning is what the process began with. It keeps nothing that was built of the first configuration.
type beginning struct {
	source    source
	discovery config.Discovery
	objects   func([]config.ObjectKind) // asks for objects of Kubernetes; nil = none, or pods are not followed yet
}

// additions are what is added to the source.
type additions struct {
	config.Additions
	refused string // why others are not added; "" = they are
}

// previous is a configuration that was replaced. It keeps the text and nothing that was built of it.
type previous struct {
	number uint64
	source source
}

// newInForce brings the first configuration into force, for the picker that was made with its plan.
func newInForce(t *tree, plugins *telemetry.Plugins, first *loaded) *inForce {
	f := &inForce{tree: t, plugins: plugins, read: first.source.text}
	f.started = beginning{source: first.source, discovery: first.Discovery}
	f.metrics = newReloadMetrics(t.registry)
	f.parser = parsers.New(parsers.Config{Seed: t.seed, MaxDecodedBytes: int(t.opts.maxBody)})
	f.put(f.compose(first, 1, t.picker.InForce()))
	return f
}

// streams returns what a request that arrives runs under.
func (f *inForce) streams() *extproc.Configuration { return &f.current.Load().streams }

func (f *inForce) compose(l *loaded, number uint64, picks *signalbox.Configuration) *configuration {
	c := &configuration{
		loaded: l, number: number, since: time.Now(), picks: picks,
		pages: pagesOf(l.Config, wanted(l.Config)), scraping: f.tree.opts.scraping(l.Config),
	}
	c.streams = extproc.Configuration{
		Number: number, Start: picks.Start, Parser: noParser{}, Priorities: l.Priorities,
		Rewrites: rewrites.NewTable(l.Rewrites), SetsPriority: l.SetsPriority,
		Headers: l.Plan.Layout().Headers(),
		Scan: func(api messages.API, contentType string) extproc.Scanner {
			return parsers.NewResponseScanner(api, contentType)
		},
		Restore: func(contentType, served, asked string) extproc.Restorer {
			if r := modelname.New(contentType, served, asked); r != nil {
				return r
			}
			return nil
		},
	}
	if l.Plan.Reports() {
		c.streams.Report = func(u *messages.Usage) []schedule.Report { return l.Plan.Report(u, f.tree.picker.System()) }
	}
	for _, name := range l.FlowHeaders {
		c.streams.Flows = append(c.streams.Flows, slices.Index(c.streams.Headers, name))
	}
	c.streams.Trust = trustOf(l.Trust)
	c.streams.VerifiesServed = l.VerifiesServed
	if l.AnswersModels {
		c.streams.Models = func() []string { return poolModels(f.tree.picker.Pool().Snapshot()) }
	}
	if formats := formatsOf(l.Parsers); formats != 0 {
		parser := f.parser.Of(formats)
		if l.Plan.Layout().Reads(attributes.MediaCached) {
			parser = parser.WithItems()
		}
		c.streams.Parser = parser
	}
	if l.Queueing != nil {
		c.streams.MakeWay = f.tree.picker.MakeWay
	}
	return c
}

// trustOf returns whose headers count.
func trustOf(t config.Trust) *trust.Policy {
	switch t.By {
	case config.TrustMetadata:
		return trust.ByMetadata(t.Headers)
	case config.TrustCertificate:
		return trust.ByCertificate(t.Headers, t.Proxies)
	}
	return nil
}

// poolModels returns the models of all endpoints, sorted.
func poolModels(snap *endpoints.Snapshot) []string {
	all := map[string]bool{}
	for _, e := range snap.Endpoints {
		for _, model := range e.Pages().Names(attributes.Models) {
			all[model] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// formatsOf returns the formats that parsers of these types read.
func formatsOf(types []string) (all parsers.Formats) {
	for _, typ := range types {
		all |= map[string]parsers.Formats{
			"openai-parser": parsers.OpenAI, "anthropic-parser": parsers.Anthropic, "vllmhttp-parser": parsers.VLLM,
			"sglanghttp-parser": parsers.SGLang, "vllmgrpc-parser": parsers.VLLMGRPC,
			"vertexai-parser": parsers.VertexAI,
		}[typ]
	}
	return all
}

// put is the one place where a configuration comes into force.
func (f *inForce) put(c *configuration) {
	for _, rewrite := range c.Rewrites {
		for _, rule := range rewrite.Rules {
			for _, target := range rule.Targets {
				f.tree.picker.Serves(target.Model)
			}
		}
	}
	f.current.Store(c)
	f.metrics.inForce(c)
}

// build makes a configuration of a text and of what is added to it, or says everything that is wrong with it. It
// changes nothing.
func (f *inForce) build(s source) (c *configuration, err error) {
	defer func() {
		if r := recover(); r != nil { // a constructor of a plugin, perhaps
			err = fmt.Errorf("%s: it cannot be built: panic: %v", s.name, r)
		}
	}()
	l, err := f.tree.opts.parse(s, f.added.Additions)
	if err != nil {
		return nil, err
	}
	now := f.current.Load()
	number := now.number + 1
	pages := pagesOf(l.Config, wanted(l.Config))
	if err := pages.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	scraping := f.tree.opts.scraping(l.Config)
	scraping.Anew = askedAnew(&configuration{loaded: l, pages: pages, scraping: scraping}, now)
	f.plugins.Observe(l.Plan)
	return f.compose(l, number, f.tree.picker.Prepare(number, l.Plan, l.Queueing, scraping)), nil
}

// replace brings a text into force. An error says why nothing changed. Its caller has mu.
func (f *inForce) replace(s source, restored uint64) error {
	now := f.current.Load()
	c, err := f.build(s)
	if err != nil {
		return err
	}
	c.restored = restored
	f.bring(c)
	f.previous = &previous{now.number, now.source}
	f.tree.log.Info("configuration in force", zap.Uint64("number", c.number), zap.String("source", s.name),
		zap.String("sha256", s.sum()), zap.Uint64("restored_from", restored))
	c.warn(f.tree.log)
	for _, w := range f.untilRestart(c) {
		f.tree.log.Warn("configuration", zap.String("warning", w))
	}
	return nil
}

// bring brings a configuration into force. Its caller has mu.
func (f *inForce) bring(c *configuration) {
	f.tree.fetcher.Read(c.pages)
	f.tree.picker.Bring(c.picks)
	f.put(c)
	f.askForObjects()
}

// add brings other objectives and rewrites into force beside those of the source. If it cannot, those before stay, and
// the caller is to try again: the text was good before, so what is wrong may pass, as a certificate that is renewed.
func (f *inForce) add(added config.Additions) (taken bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tree.draining.Load() || reflect.DeepEqual(added, f.added.Additions) {
		return true
	}
	before, now := f.added.Additions, f.current.Load()
	f.added.Additions = added
	c, err := f.build(now.source)
	if err != nil {
		f.added.Additions = before
		if text := err.Error(); text != f.added.refused {
			f.added.refused = text
			f.tree.log.Error("objectives and rewrites refused; those before stay in force, and it is tried again",
				zap.String("problem", text))
		}
		return false
	}
	f.added.refused = ""
	c.restored = now.restored
	f.bring(c)
	f.tree.log.Info("configuration in force, with other objectives or rewrites", zap.Uint64("number", c.number),
		zap.Int("objectives", len(added.Objectives)), zap.Int("rewrites", len(added.Rewrites)))
	return true
}

// warn logs what a configuration says without effect.
func (l *loaded) warn(log *telemetry.Log) {
	for _, w := range l.Warnings {
		log.Warn("configuration", zap.String("warning", w.String()))
	}
}

// refused notes why what the source holds is not in force, and returns it.
func (f *inForce) refused(err error) error {
	f.problem = &admin.ConfigurationProblem{Since: time.Now(), Text: err.Error()}
	f.metrics.refused()
	f.tree.log.Error("configuration refused; the one before stays in force",
		zap.Uint64("number", f.current.Load().number), zap.String("problem", err.Error()))
	return err
}

// accepted notes that the source holds nothing bad. The result is what became of it: changed or unchanged.
func (f *inForce) accepted(result string) {
	if f.problem != nil {
		f.tree.log.Info("configuration: all is well again")
	}
	f.problem = nil
	f.metrics.accepted(result)
}

// untilRestart names what a configuration says and only the next start does.
func (f *inForce) untilRestart(c *configuration) []string {
	if c.Discovery.Path == f.started.discovery.Path && c.Discovery.Watch == f.started.discovery.Watch {
		return nil
	}
	const text = "the endpoints come from %s until the next start, not from %s"
	return []string{fmt.Sprintf(text, originOf(f.started.discovery), originOf(c.Discovery))}
}

// originOf returns where endpoints come from by a configuration.
func originOf(d config.Discovery) string {
	switch {
	case d.Path == "":
		return "Kubernetes"
	case d.Watch:
		return "the file " + d.Path + " of file-discovery, followed"
	}
	return "the file " + d.Path + " of file-discovery, not followed"
}

// reload reads the source and brings into force what it holds.
func (f *inForce) reload() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.current.Load().source
	if !s.file {
		return admin.NotPossible("the configuration came from " + s.name + ", which cannot be read again")
	}
	text, err := readFile(context.Background(), s.name)
	return f.takeRead(files.Text{Data: text, Err: err})
}

// takeRead brings what was read of the source into force, unless it is what is in force. It alone notes what is wrong
// with the source and that it is well again. Its caller has mu.
func (f *inForce) takeRead(text files.Text) error {
	if f.tree.draining.Load() {
		return errDraining
	}
	s := f.current.Load().source
	f.read = text.Data
	if text.Err != nil {
		return f.refused(fmt.Errorf("--config-file: %w", text.Err))
	}
	if bytes.Equal(s.text, text.Data) {
		f.accepted("unchanged")
		return nil
	}
	s.text = text.Data
	if err := f.replace(s, 0); err != nil {
		return f.refused(err)
	}
	f.accepted("changed")
	return nil
}

const errDraining = admin.NotPossible("shutting down")

// restore brings the configuration back that was in force before. Once it has, there is none before, so that a call
// that is made twice does not bring back what the first one took out of force. It says nothing of the source: what is
// wrong with that stays known until it is read and good.
func (f *inForce) restore() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tree.draining.Load() {
		return errDraining
	}
	if f.previous == nil {
		return admin.NotPossible("no configuration was in force before this one, or it was brought back already")
	}
	if err := f.replace(f.previous.source, f.previous.number); err != nil {
		return err
	}
	f.previous = nil
	return nil
}

const (
	lookForConfiguration   = 500 * time.Millisecond
	settleForConfiguration = 100 * time.Millisecond
)

// follow follows the source if it is a file, until close: contents that have settled come into force, or are refused.
func (f *inForce) follow() error {
	s := f.started.source
	if !s.file {
		return nil
	}
	log := f.tree.log
	follower, err := files.New(files.Config{
		Paths: []string{s.name}, MaxBytes: inputBytes, Every: lookForConfiguration, Settle: settleForConfiguration,
		Notices: true, Told: func(error) { f.followed() },
		Deaf: func(err error) {
			if err != nil {
				log.Warn("configuration: no notifications of changes, polling alone finds them", zap.Error(err))
			}
		},
	}, func(texts []files.Text) (files.Text, error) { return texts[0], nil })
	if err != nil {
		return err
	}
	f.follower = follower
	f.followed() // it may have changed since it was read
	follower.Start()
	return nil
}

// followed takes what the follower has read, unless a reload was quicker.
func (f *inForce) followed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := f.follower.Value()
	if text.Err == nil && f.read != nil && bytes.Equal(text.Data, f.read) {
		return // what is in force by now may be what a restore brought back
	}
	_ = f.takeRead(text) // an error is noted, and logged
}

func (f *inForce) close() {
	if f.follower != nil {
		f.follower.Close()
	}
}

// view is the configuration in force, as /debug/config shows it.
func (f *inForce) view() admin.ConfigurationView {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.current.Load()
	v := admin.ConfigurationView{
		Config: describe(c.Config), Number: c.number, Since: c.since.UTC(), Source: c.source.name,
		SHA256: c.source.sum(), Restored: c.restored, Waits: f.untilRestart(c), Problem: f.problem,
	}
	if f.previous != nil {
		v.Before = f.previous.number
	}
	return v
}

// concern is what readiness says of the configuration: what the source holds is not in force.
func (f *inForce) concern() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.problem == nil {
		return ""
	}
	return fmt.Sprintf("configuration %d stays in force, for what the file holds now is bad: see /debug/config",
		f.current.Load().number)
}
