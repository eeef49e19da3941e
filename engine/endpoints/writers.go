package endpoints

import (
	"time"

	"github.com/signalbox-epp/signalbox/engine/outlier"
	learned "github.com/signalbox-epp/signalbox/engine/window"
	"github.com/signalbox-epp/signalbox/messages"
)

// SampleWriter is the handle by which an endpoint's scraper, its only holder, writes the newest sample, and the scrape
// from which the load counts.
type SampleWriter struct{ *Endpoint }

// BeginScrape notes that a scrape begins, and returns its number.
func (w SampleWriter) BeginScrape() uint32 { return w.load.beginScrape() }

// AwaitSample notes that the first page of the endpoint is to come.
func (w SampleWriter) AwaitSample() { w.window.awaited.Store(true) }

// Publish replaces the sample. Call SampleInForce after it: a reader between the two counts some picks twice, but never
// misses one.
func (w SampleWriter) Publish(s *Sample) {
	w.sample.Store(s)
	w.window.loadReported.Store(s.tellsWork()) // every pick asks, and so need not read the sample
}

// PublishPages replaces what further sources said. The load still counts from the sample.
func (w SampleWriter) PublishPages(p *Pages) { w.pages.Store(p) }

// SampleInForce notes that readers now see the sample of a scrape, which includes the picks made before that scrape
// began.
func (w SampleWriter) SampleInForce(number uint32) {
	w.load.sampleInForce(number)
	w.failing.Store(false)
	w.window.awaited.Store(false)
}

// ScrapeFailed notes that the newest scrape brought no sample. The sample of an earlier one stays in force.
func (w SampleWriter) ScrapeFailed() {
	w.failing.Store(true)
	w.window.awaited.Store(false)
}

// LoadWriter is the handle by which cycles write what their requests add to an endpoint, and how it answered them. Any
// number of them on all loops hold it at once.
type LoadWriter struct{ *Endpoint }

// Add makes a request part of the load, at a time. The caller must remove the pick once.
func (w LoadWriter) Add(of Work, now time.Time) Pick { return w.load.add(of, w.speed(), now) }

// Take is Add if there is room. Otherwise it changes nothing and returns false.
func (w LoadWriter) Take(of Work, room Room, now time.Time) (Pick, bool) {
	bound, some := w.Bound(room)
	if !some {
		return Pick{}, false
	}
	return w.load.take(of, bound, w.speed(), now)
}

// Begin notes that the first token of a request has come: its prompt is computed, and is no load any more. It returns
// what is left of the pick, which takes its place.
func (w LoadWriter) Begin(p Pick, now time.Time) Pick { return w.load.begin(p, now) }

// Remove takes a pick back.
func (w LoadWriter) Remove(p Pick) { w.load.remove(p) }

// Hold notes that a request with so many tokens waits for room at the endpoint. The caller must call Release once
// with the same number.
func (w LoadWriter) Hold(tokens int) { w.load.hold(1, tokens) }

// Release notes that a request does not wait any more for which Hold was called.
func (w LoadWriter) Release(tokens int) { w.load.hold(-1, -tokens) }

// CountPick counts a request that is sent to the endpoint.
func (w LoadWriter) CountPick() { w.sent.picks.Add(1) }

// CountModel counts a request that is sent to the endpoint by its model.
func (w LoadWriter) CountModel(model string) { w.sent.models.Add(model) }

// Answered notes that a request was answered with a good status. picked is when it was picked.
func (w LoadWriter) Answered(picked time.Time) { latest(&w.answers.began, picked.UnixNano()) }

// Proved notes that the body of a good answer came. picked is when its request was picked, began when the body did
// (zero = that was not seen), and visible says whether the body was visible.
func (w LoadWriter) Proved(prompt messages.Prompt, picked, began time.Time, visible bool) {
	latest(&w.answers.proved, picked.UnixNano())
	latest(&w.answers.prompts[length(prompt.Tokens)], picked.UnixNano())
	latest(&w.answers.reads[length(prompt.Computed)], picked.UnixNano())
	if !began.IsZero() {
		latest(&w.answers.token, began.UnixNano())
	}
	if visible {
		latest(&w.answers.visible, picked.UnixNano())
	}
}

// WindowWriter is the handle by which the window actor, its only holder, writes what it has learned of an endpoint.
type WindowWriter struct{ *Endpoint }

// SetWindow puts a learned bound in force.
func (w WindowWriter) SetWindow(r Room) {
	w.window.requests.Store(int64(r.Requests))
	w.window.tokens.Store(int64(r.Tokens))
	w.window.found.Store(r.Found)
}

// SetPace says how soon the endpoint gives first tokens, as was learned.
func (w WindowWriter) SetPace(p learned.Pace) {
	w.window.rate.Store(int64(p.Rate))
	w.window.perRequest.Store(int64(p.PerRequest))
	w.window.firsts.Store(int64(p.Count))
	w.window.marginal.Store(int64(p.Marginal))
}

// Explain says why the bound in force is what it is.
func (w WindowWriter) Explain(why learned.Why) { w.window.why.Store(&why) }

// PrefixWriter is the handle by which the prefix actor, its only holder, counts what audits find of an endpoint.
type PrefixWriter struct{ *Endpoint }

// AddAudited adds to what audits have found, and says whether the endpoint drifts.
func (w PrefixWriter) AddAudited(a Audited) {
	w.prefix.predicted.Add(a.PredictedTokens)
	w.prefix.reported.Add(a.ReportedTokens)
	w.prefix.lost.Add(a.LostBlocks)
	w.prefix.drifts.Store(a.Drifts)
}

// OutlierWriter is the handle by which the outlier actor, its only holder, writes an endpoint's status.
type OutlierWriter struct{ *Endpoint }

// SetOutlier puts a status in force; nil = healthy.
func (w OutlierWriter) SetOutlier(s *outlier.Status) { w.outlier.Store(s) }

// Publisher is the handle by which the pool actor, its only holder, publishes snapshots.
type Publisher struct{ *Published }

// Publish puts a snapshot in force. names has the addresses of all incarnations that a record may name; Publish takes
// the map over.
func (w Publisher) Publish(s *Snapshot, names map[messages.EndpointID]messages.Address) {
	w.names.Store(&names)
	w.snapshot.Store(s)
}
