package admin

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/messages"
)

// answer receives the one message with which the recorder answers a query.
type answer chan messages.AdminMsg

// Tell keeps the first message. There is no second one, and none would be read.
func (a answer) Tell(m messages.AdminMsg) bool {
	select {
	case a <- m:
		return true
	default:
		return false
	}
}

// query sends a query to the recorder, and returns the answer that comes to a. It returns false if it has refused the
// HTTP request, or the client is gone.
func (h *handler) query(w http.ResponseWriter, r *http.Request, a answer, q messages.RecorderMsg) (messages.AdminMsg,
	bool) {
	return h.await(w, r, a, "the recorder", h.Recorder.Post(q))
}

// await returns the answer that comes to a, of an actor that has taken a query or not. It returns false if it has
// refused the HTTP request, or the client is gone.
func (h *handler) await(w http.ResponseWriter, r *http.Request, a answer, who string, taken bool) (messages.AdminMsg,
	bool) {
	if !taken {
		fail(w, http.StatusServiceUnavailable, "busy", who+" is busy or gone; ask again")
		return nil, false
	}
	patience := time.NewTimer(h.AnswerWithin)
	defer patience.Stop()
	select {
	case m := <-a:
		return m, true
	case <-patience.C:
		fail(w, http.StatusServiceUnavailable, "late",
			who+" did not answer within "+short(h.AnswerWithin)+"; ask again")
	case <-r.Context().Done():
	}
	return nil, false
}

// ask returns records. It returns false if it has refused the HTTP request, or the client is gone.
func (h *handler) ask(w http.ResponseWriter, r *http.Request, q messages.RequestQueried) (messages.RecordsAnswered,
	bool) {
	a := make(answer, 1)
	q.Admin = a
	m, ok := h.query(w, r, a, q)
	if !ok {
		return messages.RecordsAnswered{}, false
	}
	got := m.(messages.RecordsAnswered)
	if got.Records.Len() == 0 && got.Partial {
		fail(w, http.StatusServiceUnavailable, "partial", "no records came in time, and some may exist; ask again")
		return got, false
	}
	return got, true
}

// requestsShown says how many requests a list shows.
var requestsShown = limits{usual: 50, most: 1000}

// requests answers with a list: the newest requests that meet the filter, or all that share a client's id.
func (h *handler) requests(w http.ResponseWriter, r *http.Request) {
	n, ok := howMany(w, r, requestsShown, "limit", "n")
	if !ok {
		return
	}
	f, ok := h.filter(w, r)
	if !ok {
		return
	}
	q := messages.RequestQueried{Newest: n, Filter: f}
	if id := r.URL.Query().Get("x-request-id"); id != "" {
		q = messages.RequestQueried{IDs: messages.ListOf(records.Label(id)), Filter: f}
	}
	if got, ok := h.ask(w, r, q); ok {
		h.list(w, r, got, n)
	}
}

// request answers with one request, or with a list if a client gave its id to several.
func (h *handler) request(w http.ResponseWriter, r *http.Request) {
	n, ok := howMany(w, r, requestsShown, "limit", "n")
	if !ok {
		return
	}
	text := r.PathValue("id")
	id, ours := h.ParseID(text)
	q := messages.RequestQueried{Request: id}
	first, second := records.IDReadings(text)
	if !ours {
		q = messages.RequestQueried{IDs: messages.ListOf(append(first, second...)...)}
	}
	got, ok := h.ask(w, r, q)
	if !ours {
		got.Records = messages.TakeList(records.OfFirstReading(got.Records.Append(nil), first))
	}
	switch {
	case !ok:
	case got.Records.Len() == 0:
		fail(w, http.StatusNotFound, "not-found", notFound(text, ours, &got))
	case got.Records.Len() > 1:
		h.list(w, r, got, n)
	default:
		record := got.Records.At(0)
		view := h.full(&record)
		view.Hops = h.hops(r.Context(), record.Request)
		if wantsJSON(r) {
			writeJSON(w, http.StatusOK, RequestsPage{Requests: []requestView{view}, LostRecords: got.Lost,
				Partial: got.Partial})
			return
		}
		text := explain(&view, asksForAll(r))
		if got.Partial && !ours {
			text += "\nincomplete: other requests may have this id; a part of the process did not answer in time\n"
		}
		if got.Unasked > 0 {
			text += "\n" + notAsked(got.Unasked)
		}
		plain(w, http.StatusOK, text)
	}
}

func (h *handler) list(w http.ResponseWriter, r *http.Request, got messages.RecordsAnswered, n int) {
	p := RequestsPage{Requests: []requestView{}, LostRecords: got.Lost, Partial: got.Partial,
		LeftOut: max(got.Records.Len()-n, 0), Unasked: got.Unasked}
	for i, record := range got.Records.All() {
		if i == n {
			break
		}
		p.Requests = append(p.Requests, h.summary(&record))
	}
	if wantsJSON(r) {
		writeJSON(w, http.StatusOK, p)
		return
	}
	text := listing(&p)
	if r.PathValue("id") != "" {
		text = "several requests have this id; each can be had by its own, in the first column\n\n" + text
	}
	plain(w, http.StatusOK, text)
}

func asksForAll(r *http.Request) bool {
	values, given := r.URL.Query()["all"]
	return given && values[0] != "false" && values[0] != "0"
}

// ourForm matches the ids that a Signalbox gives out.
var ourForm = regexp.MustCompile(`^[0-9a-f]{16}-[0-9]+$`)

// notFound returns what an id seems to be, and what to look for in its place.
func notFound(id string, ours bool, got *messages.RecordsAnswered) string {
	const instead = "look for the x-request-id of the answer's headers, _request_id in the OpenAI client, or its " +
		"x-signalbox-request-id"
	var text string
	bare, prefixed := records.CutResponsePrefix(id)
	switch {
	case ours:
		text = "no record of request " + id
	case ourForm.MatchString(id):
		text = id + " looks like an id of another process of ours, before a restart or another replica, and no " +
			"client sent it as x-request-id"
	case strings.HasPrefix(id, "resp_"):
		text = "no record of a request whose response has the id " + clean(id) +
			": model servers make such ids by themselves, and Signalbox knows one only if it saw the response's " +
			"body, in the full lane; " + instead
	case prefixed:
		text = "no record of a request with x-request-id " + clean(bare) + ", of which vLLM would have made " +
			clean(id) + ": other model servers make such ids by themselves, and Signalbox knows one only if it saw " +
			"the response's body, in the full lane; " + instead
	default:
		text = "no record of a request with x-request-id " + clean(id) + "; ids of ours look like 0123456789abcdef-42"
	}
	text += "; records live in memory, /debug/requests lists them"
	if got.Unasked > 0 {
		text += "; " + strings.TrimSpace(notAsked(got.Unasked))
	}
	if lost := got.Lost; lost > 0 {
		verb := " records have made"
		if lost == 1 {
			verb = " record has made"
		}
		text += "; " + strconv.FormatUint(lost, 10) + verb + " way for newer ones since the start"
	}
	return text
}

// notAsked returns the line which says that more requests may exist.
func notAsked(n int) string {
	return fmt.Sprintf("incomplete: %s that run were not looked at, for more run than are looked at in one go\n",
		plural(n, "request"))
}

// listing returns a list of requests as text, one line each.
func listing(p *RequestsPage) string {
	text := p.Table(width)
	if p.LeftOut > 0 {
		text += fmt.Sprintf("%d more; limit shows more, at most %d\n", p.LeftOut, requestsShown.most)
	}
	if p.Unasked > 0 {
		text += notAsked(p.Unasked)
	}
	if p.Partial {
		text += "incomplete: a part of the process did not answer in time\n"
	}
	return text
}

// News returns the requests of the page that have ended and are not in seen, the oldest first, and adds them to seen.
// What the page no longer has leaves seen.
func (p *RequestsPage) News(seen map[string]bool) *RequestsPage {
	news, listed := &RequestsPage{}, map[string]bool{}
	for i := range p.Requests {
		r := &p.Requests[i]
		listed[r.ID] = true
		if !r.Running && !seen[r.ID] {
			seen[r.ID] = true
			news.Requests = append(news.Requests, *r)
		}
	}
	maps.DeleteFunc(seen, func(id string, _ bool) bool { return !listed[id] })
	slices.Reverse(news.Requests)
	return news
}

const (
	addressColumns = 21 // any IPv4 address with a port
	outcomeColumns = 20
	apiColumns     = 20
	clientColumns  = 24 // OpenAI/Python 1.109.1
	modelColumns   = 40
	modelLeast     = 8
	modelUsual     = 24          // below which a name is not cut for the client's
	sentTo         = "→"         // stands before an endpoint that has not answered yet
	rejectedPrefix = "rejected-" // of some reasons; lists leave it out
)

// Table returns the requests as text, one line each. Names of models are cut so that the table fits. If it is still
// wider than columns, its least important columns are left out. Lines that are too long even then are left to the
// caller to cut.
func (p *RequestsPage) Table(columns int) string {
	if len(p.Requests) == 0 {
		return "no requests\n"
	}
	const model = 2
	rows := [][]string{{"id", "age", "model", "endpoint", "outcome", "queue", "ttft", "took", "api", "client"}}
	for i := range p.Requests {
		r := &p.Requests[i]
		rows = append(rows, []string{
			r.ID, short(time.Duration(r.AgeSeconds)), clip(orNone(clean(r.Model)), modelColumns),
			clip(r.place(), addressColumns+1),
			clip(r.Outcome(), outcomeColumns), short(time.Duration(r.QueueWaitSeconds)), r.FirstTokenSeconds.text(),
			r.DurationSeconds.text(), clip(r.api(), apiColumns), clip(orNone(clean(r.Client)), clientColumns),
		})
	}
	longest := columnOf(rows, model)
	rows, sides := fit(rows, "lrlllrrrll", columns+max(longest-modelUsual, 0), "client", "api")
	// what the names can give before a column is left out
	rows, sides = fit(rows, sides, columns+max(longest-modelLeast, 0), "queue", "took", "ttft", "endpoint")
	left := columns - (tableColumns(rows) - columnOf(rows, model))
	for _, row := range rows {
		row[model] = clip(row[model], max(left, modelLeast))
	}
	var b strings.Builder
	table(&b, "", sides, rows)
	return b.String()
}

// api returns the API of the request's body, or else its path.
func (r *requestView) api() string {
	if r.API != "" {
		return r.API
	}
	return orNone(clean(r.Path))
}

// place returns the endpoint that served the request. While that is not known, it returns the endpoint that the request
// was sent to, marked as such.
func (r *requestView) place() string {
	switch {
	case r.Served == nil && r.Beyond != "":
		return clean(r.Beyond)
	case r.Served == nil && r.Picked != nil:
		return sentTo + r.Picked.text()
	}
	return r.Served.text()
}

// Outcome returns status and reason in few words.
func (r *requestView) Outcome() string {
	reason := strings.TrimPrefix(r.Reason, rejectedPrefix)
	switch {
	case r.Reason == messages.ClientGone.String() && r.Status < 400 && r.FirstTokenSeconds == nil:
		return reason // its status is no success
	case r.Status != 0 && reason != "":
		return strconv.Itoa(r.Status) + " " + reason
	case r.Status != 0 && r.Running:
		return strconv.Itoa(r.Status) + " running"
	case r.Status != 0:
		return strconv.Itoa(r.Status)
	case reason != "":
		return reason
	case r.Running:
		return "running"
	}
	return "no response"
}

func orNone(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
