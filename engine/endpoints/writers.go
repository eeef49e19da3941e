package endpoints

import (
	"time"

	"github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/messages"
)

// SampleWriter is the handle of an endpoint's scraper, its only holder: the newest sample, and which scrape the load
// counts from.
type SampleWriter struct{ *Endpoint }

// BeginScrape notes that a scrape begins, and returns its number.
func (w SampleWriter) BeginScrape() uint32 { return w.load.beginScrape() }

// Publish puts a sample in the place of the one before. SampleInForce follows: between the two a reader counts some
// picks twice, and never misses one.
func (w SampleWriter) Publish(s *Sample) { w.sample.Store(s) }

// SampleInForce notes that the sample of a scrape is what readers see now, with the picks from before that scrape in
// it.
func (w SampleWriter) SampleInForce(number uint32) {
	w.load.sampleInForce(number)
	w.failing.Store(false)
}

// ScrapeFailed notes that the newest scrape brought no sample. The one before stays.
func (w SampleWriter) ScrapeFailed() { w.failing.Store(true) }

// LoadWriter is the handle of cycles, of any number on all loops at once: what their requests add to an endpoint, and
// how it answered them.
type LoadWriter struct{ *Endpoint }

// Add makes a request with so many prompt tokens part of the load. The caller removes the pick, once.
func (w LoadWriter) Add(tokens int) Pick { return w.load.add(tokens) }

// Remove takes a pick back.
func (w LoadWriter) Remove(p Pick) { w.load.remove(p) }

// CountPick counts a request that was sent there.
func (w LoadWriter) CountPick() { w.picks.Add(1) }

// CountModel counts a request that was sent there under its model.
func (w LoadWriter) CountModel(model string) { w.models.Add(model) }

// Answered notes that the endpoint began to answer a request well that was picked then.
func (w LoadWriter) Answered(picked time.Time) { latest(&w.answers.began, picked.UnixNano()) }

// Proved notes that the body of such an answer came, and was visible, or only told of.
func (w LoadWriter) Proved(picked time.Time, visible bool) {
	latest(&w.answers.proved, picked.UnixNano())
	if visible {
		latest(&w.answers.shown, picked.UnixNano())
	}
}

// OutlierWriter is the handle of the outlier actor, its only holder.
type OutlierWriter struct{ *Endpoint }

// SetOutlier puts a status in force; nil = healthy.
func (w OutlierWriter) SetOutlier(s *outlier.Status) { w.outlier.Store(s) }

// PoolWriter is the handle of the pool actor, its only holder.
type PoolWriter struct{ *Pool }

// Publish puts a snapshot in force. names are the addresses of all incarnations that a record may still name; the pool
// keeps the map.
func (w PoolWriter) Publish(s *Snapshot, names map[messages.EndpointID]messages.Address) {
	w.names.Store(&names)
	w.snapshot.Store(s)
}
