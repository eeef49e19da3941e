package admin

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/messages"
)

// answer is the one message that the recorder owes for a query.
type answer chan messages.AdminMsg

// Tell keeps the first message. There is no second, and nobody would wait for it.
func (a answer) Tell(m messages.AdminMsg) bool {
	select {
	case a <- m:
		return true
	default:
		return false
	}
}

// query puts a query to the recorder, whose answer comes to a. False means that the HTTP request is answered already, or
// its client gone.
func (h *handler) query(w http.ResponseWriter, r *http.Request, a answer, q messages.RecorderMsg) (messages.AdminMsg, bool) {
	if !h.Recorder.Tell(q) {
		fail(w, http.StatusServiceUnavailable, "busy", "the recorder is busy or gone; ask again")
		return nil, false
	}
	patience := time.NewTimer(h.AnswerWithin)
	defer patience.Stop()
	select {
	case m := <-a:
		return m, true
	case <-patience.C:
		fail(w, http.StatusServiceUnavailable, "late", "the recorder did not answer within "+short(h.AnswerWithin)+"; ask again")
	case <-r.Context().Done():
	}
	return nil, false
}

// ask gets records. False means that the HTTP request is answered already, or its client gone.
func (h *handler) ask(w http.ResponseWriter, r *http.Request, q messages.RequestQueried) (messages.RecordsAnswered, bool) {
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

// requests answers with a list: the newest, or all that share a client's id.
func (h *handler) requests(w http.ResponseWriter, r *http.Request) {
	n, ok := howMany(w, r, "n", limits{newest, mostNewest})
	if !ok {
		return
	}
	q := messages.RequestQueried{Newest: n}
	if id := r.URL.Query().Get("x-request-id"); id != "" {
		q = messages.RequestQueried{ClientID: records.Label(id)}
	}
	if got, ok := h.ask(w, r, q); ok {
		h.list(w, r, got, n)
	}
}

// limits of how many of something a page shows.
type limits struct {
	usual int // if the client does not say
	most  int
}

// howMany reads the parameter name. False means that it is no number that is answered, and that the client has been told so.
func howMany(w http.ResponseWriter, r *http.Request, name string, l limits) (int, bool) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return l.usual, true
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > l.most {
		fail(w, http.StatusBadRequest, "bad-number", fmt.Sprintf("%s must be 1 to %d", name, l.most))
		return 0, false
	}
	return n, true
}

// request answers with one request, or with a list if a client gave its id to several.
func (h *handler) request(w http.ResponseWriter, r *http.Request) {
	n, ok := howMany(w, r, "n", limits{newest, mostNewest})
	if !ok {
		return
	}
	text := r.PathValue("id")
	id, ours := h.ParseID(text)
	q := messages.RequestQueried{Request: id}
	if !ours {
		q = messages.RequestQueried{ClientID: records.Label(text)}
	}
	got, ok := h.ask(w, r, q)
	switch {
	case !ok:
	case got.Records.Len() == 0:
		fail(w, http.StatusNotFound, "not-found", notFound(text, ours, got.Lost))
	case got.Records.Len() > 1:
		h.list(w, r, got, n)
	case wantsJSON(r):
		record := got.Records.At(0)
		writeJSON(w, http.StatusOK, page{Requests: []requestView{h.full(&record)}, LostRecords: got.Lost, Partial: got.Partial})
	default:
		record := got.Records.At(0)
		view := h.full(&record)
		text := explain(&view, asksForAll(r))
		if got.Partial && !ours {
			text += "\nincomplete: other requests may have this x-request-id; a part of the process did not answer in time\n"
		}
		plain(w, http.StatusOK, text)
	}
}

func (h *handler) list(w http.ResponseWriter, r *http.Request, got messages.RecordsAnswered, n int) {
	p := page{Requests: []requestView{}, LostRecords: got.Lost, Partial: got.Partial, LeftOut: max(got.Records.Len()-n, 0)}
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
		text = "several requests have this x-request-id; each can be had by its id\n\n" + text
	}
	plain(w, http.StatusOK, text)
}

func asksForAll(r *http.Request) bool {
	values, given := r.URL.Query()["all"]
	return given && values[0] != "false" && values[0] != "0"
}

// ourForm is what ids look like that some process of ours gave out.
var ourForm = regexp.MustCompile(`^[0-9a-f]{16}-[0-9]+$`)

func notFound(id string, ours bool, lost uint64) string {
	var text string
	switch {
	case ours:
		text = "no record of request " + id
	case ourForm.MatchString(id):
		text = id + " looks like an id of another process of ours, before a restart or another replica, and no client sent it as x-request-id"
	default:
		text = "no record of a request with x-request-id " + clean(id) + "; ids of ours look like 0123456789abcdef-42"
	}
	text += "; records live in memory, /debug/requests lists them"
	if lost > 0 {
		verb := " records have made"
		if lost == 1 {
			verb = " record has made"
		}
		text += "; " + strconv.FormatUint(lost, 10) + verb + " way for newer ones since the start"
	}
	return text
}
