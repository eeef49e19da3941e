package admin

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/messages"
)

// EndpointView is what is shown of one endpoint of the pool.
type EndpointView struct {
	Name       string            `json:"name"`
	Namespace  string            `json:"namespace"`
	Address    string            `json:"address"`
	Slot       uint32            `json:"slot"`
	Generation uint32            `json:"generation"`
	Labels     map[string]string `json:"labels,omitempty"`

	Outlier          *OutlierView `json:"outlier"`           // null = healthy
	Scraped          bool         `json:"scraped"`           // its metrics page is read
	Failing          bool         `json:"failing"`           // the newest scrape failed
	InflightRequests int          `json:"inflight_requests"` // sent by this process, not ended
	InflightTokens   int          `json:"inflight_tokens"`   // their prompts, estimated
	Picks            uint64       `json:"picks"`             // since this incarnation
	Prefix           *PrefixView  `json:"prefix,omitempty"`  // absent = no answer was audited
	Pace             *PaceView    `json:"pace,omitempty"`    // absent = no first token was seen

	Sample  *SampleView  `json:"sample"`            // null = no scrape has succeeded yet, or it is not scraped
	Sources []SourceView `json:"sources,omitempty"` // beside the metrics page of the sample, by name
}

// PaceView is how soon an endpoint gives first tokens, as they have shown.
type PaceView struct {
	TokensPerSecond   int     `json:"tokens_per_second"`   // so many of prompts delay a first token by a second
	SecondsPerRequest float64 `json:"seconds_per_request"` // by which each in flight delays others' first tokens
	FirstTokens       int     `json:"first_tokens"`        // that say so; of older ones a part counts
}

// PrefixView is what audits of answers have found of a prefix cache, since this incarnation.
type PrefixView struct {
	PredictedTokens uint64 `json:"predicted_tokens"` // which the prefix index held of the prompts
	ReportedTokens  uint64 `json:"reported_tokens"`  // which the server reported as cached
	LostBlocks      uint64 `json:"lost_blocks"`      // dropped from the index
	Drifting        bool   `json:"drifting"`         // it does not find again what it computed
}

// SourceView is what a further source, by the name of its plugin, said of an endpoint.
type SourceView struct {
	Name       string          `json:"name"`
	AgeSeconds *float64        `json:"age_seconds"` // of its newest answer; null = there was none
	Fresh      bool            `json:"fresh"`
	Failing    bool            `json:"failing"` // the newest fetch failed
	Attributes []AttributeView `json:"attributes"`
}

// AttributeView is an attribute that a plugin reads.
type AttributeView struct {
	Name     string  `json:"name"`
	Producer string  `json:"producer"` // the extractor
	Value    float64 `json:"value"`
}

// OutlierView is an endpoint's status as an outlier.
type OutlierView struct {
	State        string  `json:"state"` // "ejected", "degraded" (it comes last) or "half-open" (a probe is under way)
	Cause        string  `json:"cause"` // the kind of failure
	Incident     uint64  `json:"incident"`
	SinceSeconds float64 `json:"since_seconds"`
}

func outlierView(s *outlier.Status, now time.Time) *OutlierView {
	if s == nil {
		return nil
	}
	state := outlier.Degraded
	switch {
	case s.Probing():
		state = outlier.HalfOpen
	case s.Ejected:
		state = outlier.Ejected
	}
	return &OutlierView{state.String(), s.Cause.String(), s.Incident, now.Sub(s.Since).Seconds()}
}

// SampleView is what the newest successful scrape said. A null number is one that the server does not report.
type SampleView struct {
	AgeSeconds   float64  `json:"age_seconds"`
	Fresh        bool     `json:"fresh"`
	Asleep       *bool    `json:"asleep,omitempty"` // an engine sleeps; absent = the page does not say
	Engine       string   `json:"engine"`
	Waiting      *int     `json:"waiting_requests"`
	Running      *int     `json:"running_requests"`
	KVUsedRatio  *float64 `json:"kv_used_ratio"` // 0 to 1
	BlockTokens  *int     `json:"block_tokens"`
	Blocks       *int     `json:"blocks"`
	Models       []string `json:"models,omitempty"`
	ActiveLoRAs  []string `json:"active_loras,omitempty"`
	WaitingLoRAs []string `json:"waiting_loras,omitempty"`
	Resident     []string `json:"resident_loras,omitempty"`
	Host         []string `json:"host_loras,omitempty"`
	MaxLoRAs     *int     `json:"max_loras"`

	Attributes []AttributeView `json:"attributes,omitempty"` // that extractors took beside what is built in
}

// Views returns the endpoints of a snapshot. threshold is the age from which on a sample is stale.
func Views(s *endpoints.Snapshot, now time.Time, threshold time.Duration) []EndpointView {
	out := make([]EndpointView, 0, len(s.Endpoints))
	for _, e := range s.Endpoints {
		v := EndpointView{
			Name: e.Spec.Name, Namespace: e.Spec.Namespace, Address: string(e.Spec.Address),
			Slot: e.ID.Slot, Generation: e.ID.Generation, Labels: e.Labels,
			Failing: e.Failing(), Outlier: outlierView(e.Outlier(), now),
			InflightRequests: e.Counters().Inflight, InflightTokens: e.Counters().Tokens, Picks: e.Picks(),
		}
		if found := e.Prefix(); found != (endpoints.Audited{}) {
			v.Prefix = &PrefixView{found.PredictedTokens, found.ReportedTokens, found.LostBlocks, found.Drifts}
		}
		if p := e.Pace(); p.Count > 0 {
			v.Pace = &PaceView{p.Marginal, p.PerRequest.Seconds(), p.Count}
		}
		if s := e.Sample(); s != nil {
			v.Sample = sampleView(s, now, threshold)
			v.Sample.Models = e.Pages().Names(attributes.Models)
		}
		for page := range e.Pages().All() {
			v.Sources = append(v.Sources, sourceView(page, now, threshold))
		}
		slices.SortFunc(v.Sources, func(a, b SourceView) int { return cmp.Compare(a.Name, b.Name) })
		out = append(out, v)
	}
	return out
}

func sampleView(s *endpoints.Sample, now time.Time, threshold time.Duration) *SampleView {
	return &SampleView{
		AgeSeconds: now.Sub(s.At).Seconds(), Fresh: s.Fresh(now, threshold), Engine: s.Engine,
		Waiting:     whole(s.BuiltIn(attributes.WaitingRequests)),
		Running:     whole(s.BuiltIn(attributes.RunningRequests)),
		KVUsedRatio: reported(s.BuiltIn(attributes.KVCacheUsage)),
		BlockTokens: whole(s.BuiltIn(attributes.KVBlockTokens)), Blocks: whole(s.BuiltIn(attributes.KVBlocks)),
		Asleep:      yesNo(s.BuiltIn(attributes.Asleep)),
		ActiveLoRAs: s.Names(attributes.ActiveLoRAs), WaitingLoRAs: s.Names(attributes.WaitingLoRAs),
		Resident: s.Names(attributes.ResidentLoRAs), Host: s.Names(attributes.HostLoRAs),
		MaxLoRAs: whole(s.BuiltIn(attributes.MaxLoRAs)), Attributes: attributesOf(s.Numbers),
	}
}

func sourceView(p *endpoints.Page, now time.Time, threshold time.Duration) SourceView {
	v := SourceView{
		Name: p.Source, Fresh: !now.After(p.FreshUntil(threshold)), Failing: p.Failing,
		Attributes: attributesOf(p.Numbers),
	}
	if !p.At.IsZero() {
		age := now.Sub(p.At).Seconds()
		v.AgeSeconds = &age
	}
	return v
}

// attributesOf returns those of a page that are not built in.
func attributesOf(list []messages.Extracted) []AttributeView {
	all := []AttributeView{}
	for _, x := range list {
		if x.Producer != "" {
			all = append(all, AttributeView{x.Attribute, x.Producer, x.Value})
		}
	}
	return all
}

// yesNo returns whether a number is not 0; nil = it is NaN.
func yesNo(x float64) *bool {
	if math.IsNaN(x) {
		return nil
	}
	yes := x != 0
	return &yes
}

// reported returns a number; nil = it is NaN.
func reported(x float64) *float64 {
	if math.IsNaN(x) {
		return nil
	}
	return &x
}

// whole returns a number without its fraction; nil = it is NaN.
func whole(x float64) *int {
	if math.IsNaN(x) {
		return nil
	}
	n := int(min(x, math.MaxInt32))
	return &n
}

func (h *handler) endpoints(w http.ResponseWriter, r *http.Request) {
	if h.Endpoints == nil {
		fail(w, http.StatusNotFound, "not-shown", "this process does not show its endpoints")
		return
	}
	list := append([]EndpointView{}, h.views()...)
	slices.SortFunc(list, func(a, b EndpointView) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Address, b.Address), cmp.Compare(a.Slot, b.Slot))
	})
	p := EndpointsPage{list, h.notScraped()}
	if wantsJSON(r) {
		writeJSON(w, http.StatusOK, p)
		return
	}
	plain(w, http.StatusOK, p.text())
}

// EndpointsPage is the JSON form of the pool, and all that the text is made of.
type EndpointsPage struct {
	Endpoints []EndpointView `json:"endpoints"`
	// NotScraped is why no endpoint's metrics page is read, so that no endpoint has a sample; "" = the pages are read.
	NotScraped string `json:"not_scraped"`
}

// views returns the endpoints, in any order.
func (h *handler) views() []EndpointView {
	if h.Endpoints == nil {
		return nil
	}
	list := h.Endpoints()
	for i := range list {
		list[i].Scraped = h.notScraped() == ""
	}
	return list
}

// notScraped returns why no endpoint's metrics page is read; "" = they are read.
func (h *handler) notScraped() string {
	if h.NotScraped == nil {
		return ""
	}
	return h.NotScraped()
}

func (p *EndpointsPage) text() string { return p.Table(math.MaxInt) }

// Table returns the page as text. If the table is wider than columns, its least important columns are left out. Lines
// that are too long even then are left to the caller to cut.
func (p *EndpointsPage) Table(columns int) string {
	list := p.Endpoints
	if len(list) == 0 {
		return "no endpoints\n"
	}
	rows := [][]string{{"endpoint", "name", "sample", "engine", "waiting", "running", "kv", "loras", "inflight",
		"tokens", "picks", "state"}}
	for i := range list {
		e := &list[i]
		row := []string{clip(clean(e.Address), addressColumns), clip(clean(e.Name), 20), e.state(), "-", "-", "-", "-",
			"-"}
		if s := e.Sample; s != nil {
			row[3], row[4], row[5] = clip(orNone(clean(s.Engine)), 10), orUnknown(s.Waiting), orUnknown(s.Running)
			if s.KVUsedRatio != nil {
				row[6] = fmt.Sprintf("%.0f%%", 100**s.KVUsedRatio)
			}
			if s.MaxLoRAs != nil && *s.MaxLoRAs > 0 {
				row[7] = fmt.Sprintf("%d/%d", len(s.ActiveLoRAs), *s.MaxLoRAs)
			}
		}
		rows = append(rows, append(row, strconv.Itoa(e.InflightRequests), strconv.Itoa(e.InflightTokens),
			strconv.FormatUint(e.Picks, 10), e.outlier()))
	}
	var b strings.Builder
	rows, sides := fit(rows, "llllrrrrrrrl", columns, "engine", "loras", "tokens", "picks", "running", "name", "kv",
		"sample")
	table(&b, "", sides, rows)
	p.sources(&b, columns)
	if p.NotScraped != "" {
		b.WriteString("not scraped: " + clean(p.NotScraped) + "\n")
	}
	return b.String()
}

// sources writes what further sources said, and what extractors took from the page of the sample, if there is any.
func (p *EndpointsPage) sources(b *strings.Builder, columns int) {
	rows := [][]string{{"endpoint", "source", "answer", "attributes"}}
	for i := range p.Endpoints {
		e := &p.Endpoints[i]
		address := clip(clean(e.Address), addressColumns)
		if e.Sample != nil && len(e.Sample.Attributes) > 0 {
			rows = append(rows, []string{address, "metrics page", e.state(), valuesOf(e.Sample.Attributes)})
		}
		for j := range e.Sources {
			s := &e.Sources[j]
			rows = append(rows, []string{address, clip(clean(s.Name), 30), s.state(), valuesOf(s.Attributes)})
		}
	}
	if len(rows) == 1 {
		return
	}
	b.WriteString("\n")
	rows, sides := fit(rows, "llll", columns, "answer", "attributes")
	table(b, "", sides, rows)
}

func valuesOf(list []AttributeView) string {
	all := make([]string, 0, len(list))
	for _, a := range list {
		all = append(all, clip(clean(a.Name), 60)+" "+strconv.FormatFloat(a.Value, 'g', 6, 64))
	}
	return orNone(strings.Join(all, ", "))
}

// state returns the age of the source's newest answer, and in a word whether it counts.
func (s *SourceView) state() string {
	return answerState(s.AgeSeconds, s.Failing, s.Fresh)
}

// answerState returns the age of an answer, and in a word whether it counts; nil = there was none.
func answerState(age *float64, failing, fresh bool) string {
	switch {
	case age == nil && failing:
		return "none, failing"
	case age == nil:
		return "none yet"
	}
	text := short(time.Duration(*age * float64(time.Second)))
	switch {
	case failing:
		return text + " failing"
	case !fresh:
		return text + " stale"
	}
	return text
}

func orUnknown(n *int) string {
	if n == nil {
		return "-"
	}
	return strconv.Itoa(*n)
}

func (e *EndpointView) outlier() string {
	switch s := e.Sample; {
	case s != nil && s.Fresh && s.Asleep != nil && *s.Asleep:
		return messages.Asleep.String()
	case e.Outlier == nil:
		return outlier.Healthy.String()
	}
	return e.Outlier.State + ": " + e.Outlier.Cause
}

// state returns the age of the sample, and in a word whether it counts.
func (e *EndpointView) state() string {
	switch {
	case e.Sample != nil:
		return answerState(&e.Sample.AgeSeconds, e.Failing, e.Sample.Fresh)
	case !e.Scraped:
		return "not scraped"
	}
	return answerState(nil, e.Failing, false)
}

// ProxyView is what is shown of a proxy that is connected.
type ProxyView struct {
	From         string  `json:"from"`        // its address, without a port
	Node         *string `json:"node"`        // as its access log or xDS names it; null = unknown
	Version      *string `json:"version"`     // of Envoy, likewise
	Lane         *string `json:"lane"`        // "light", "full" or "light+full"; null = it has asked for nothing
	Connections  int     `json:"connections"` // that ask for picks
	Light        uint64  `json:"light_requests"`
	Full         uint64  `json:"full_requests"`
	AccessLog    string  `json:"access_log"` // "seen", "awaited", "missing", "ended", "not needed" or "none"
	XDS          bool    `json:"xds"`        // it is configured by this process
	SinceSeconds float64 `json:"since_seconds"`
}

func (h *handler) proxies(w http.ResponseWriter, r *http.Request) {
	if h.Proxies == nil {
		fail(w, http.StatusNotFound, "not-shown", "this process does not show its proxies")
		return
	}
	list := append([]ProxyView{}, h.Proxies()...)
	if wantsJSON(r) {
		writeJSON(w, http.StatusOK, struct {
			Proxies []ProxyView `json:"proxies"`
		}{list})
		return
	}
	plain(w, http.StatusOK, proxiesText(list))
}

func proxiesText(list []ProxyView) string {
	if len(list) == 0 {
		return "no proxies\n"
	}
	known := func(s *string) string {
		if s == nil {
			return "unknown"
		}
		return clean(*s)
	}
	rows := [][]string{{"from", "node", "version", "lane", "access log", "xds", "connections", "light", "full",
		"since"}}
	for i := range list {
		p := &list[i]
		xds := "no"
		if p.XDS {
			xds = "yes"
		}
		rows = append(rows, []string{
			clip(clean(p.From), addressColumns), clip(known(p.Node), 24), known(p.Version), known(p.Lane), p.AccessLog,
			xds, strconv.Itoa(p.Connections),
			strconv.FormatUint(p.Light, 10), strconv.FormatUint(p.Full, 10),
			short(time.Duration(p.SinceSeconds * float64(time.Second))),
		})
	}
	var b strings.Builder
	table(&b, "", "llllllrrrr", rows)
	return b.String()
}
