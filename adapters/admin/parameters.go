package admin

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/engine/spelling"
	"github.com/signalbox-epp/signalbox/messages"
)

// strict passes on requests whose query holds nothing but the parameters of takes and format, each once. Others are
// refused: a misspelt parameter that was ignored would answer another question.
func strict(takes []string, next http.HandlerFunc) http.HandlerFunc {
	known := append([]string{"format"}, takes...)
	slices.Sort(known)
	return func(w http.ResponseWriter, r *http.Request) {
		values, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			fail(w, http.StatusBadRequest, "bad-query", "the query cannot be read: "+clean(err.Error()))
			return
		}
		for _, name := range sortedKeys(values) {
			switch {
			case !slices.Contains(known, name):
				fail(w, http.StatusBadRequest, "unknown-parameter", unknown("parameter", name, known))
				return
			case len(values[name]) > 1:
				fail(w, http.StatusBadRequest, "repeated-parameter", name+" must stand there once")
				return
			}
		}
		switch values.Get("format") {
		case "", "json", "text":
			next(w, r)
		default:
			fail(w, http.StatusBadRequest, "bad-format", "format must be json or text")
		}
	}
}

func sortedKeys(values url.Values) []string {
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// unknown returns a text which says that there is no such thing, which name is similar, and which there are.
func unknown(what, name string, known []string) string {
	text := fmt.Sprintf("unknown %s %s", what, clip(clean(strconv.Quote(name)), 80))
	if near := spelling.Nearest(name, known); near != "" {
		text += ", did you mean " + near + "?"
	}
	if len(known) == 0 {
		return text + "; there is none"
	}
	return text + "; known are " + strings.Join(known, ", ")
}

// limits says how many of something a page shows.
type limits struct {
	usual int // if the client does not say
	most  int
}

// howMany returns the number in the first of these parameters that is given. If it is not a number within the limits,
// howMany refuses the request and returns false.
func howMany(w http.ResponseWriter, r *http.Request, l limits, names ...string) (int, bool) {
	query := r.URL.Query()
	for _, name := range names {
		text := query.Get(name)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > l.most {
			fail(w, http.StatusBadRequest, "bad-number", fmt.Sprintf("%s must be 1 to %d", name, l.most))
			return 0, false
		}
		return n, true
	}
	return l.usual, true
}

// listParameters holds the parameters of a list of requests. n is short for limit.
var listParameters = []string{"endpoint", "limit", "model", "n", "reason", "status", "x-request-id"}

// filter returns which requests a list shows. If that cannot be read, filter refuses the request and returns false.
func (h *handler) filter(w http.ResponseWriter, r *http.Request) (messages.RecordFilter, bool) {
	query := r.URL.Query()
	f := messages.RecordFilter{Model: records.Label(query.Get("model"))}
	if text := query.Get("status"); text != "" {
		var ok bool
		if f.Status, ok = statuses(text); !ok {
			fail(w, http.StatusBadRequest, "bad-status", "status must be a code such as 503, or a class such as 5xx")
			return f, false
		}
	}
	if text := query.Get("reason"); text != "" {
		list, ok := reasons(text)
		if !ok {
			fail(w, http.StatusBadRequest, "unknown-reason", unknown("reason", text, Reasons()))
			return f, false
		}
		f.Reasons = messages.TakeList(list)
	}
	if text := query.Get("endpoint"); text != "" && !h.place(text, &f) {
		fail(w, http.StatusNotFound, "no-such-endpoint", unknown("endpoint", text, h.endpointNames())+
			"; any address such as 10.0.0.1:8000 may be given too")
		return f, false
	}
	return f, true
}

// statuses reads a status or a class of them.
func statuses(text string) (messages.StatusRange, bool) {
	if class, ok := strings.CutSuffix(strings.ToLower(text), "xx"); ok && len(class) == 1 && class >= "1" &&
		class <= "5" {
		from := 100 * int(class[0]-'0')
		return messages.StatusRange{From: from, To: from + 99}, true
	}
	code, err := strconv.Atoi(text)
	return messages.StatusRange{From: code, To: code}, err == nil && code >= 100 && code <= 599
}

const (
	anyReason = "any"  // all but none
	noReason  = "none" // the request was served
)

// Reasons returns the values of the parameter reason.
func Reasons() []string {
	all := []string{anyReason, noReason}
	for r := messages.NoReason + 1; r.String() != "unknown"; r++ {
		all = append(all, r.String())
	}
	return all
}

// reasons reads a reason, with or without the prefix that lists leave out.
func reasons(text string) ([]messages.Reason, bool) {
	if text == noReason {
		return []messages.Reason{messages.NoReason}, true
	}
	var list []messages.Reason
	for r := messages.NoReason + 1; r.String() != "unknown"; r++ {
		if name := r.String(); text == anyReason || text == name || rejectedPrefix+text == name {
			list = append(list, r)
		}
	}
	return list, len(list) > 0
}

// place reads an endpoint into f: a name in the pool, or any address. It returns false if the text is neither.
func (h *handler) place(text string, f *messages.RecordFilter) bool {
	addresses := map[messages.Address]bool{}
	if at, err := netip.ParseAddrPort(text); err == nil {
		f.Elsewhere = messages.Address(at.String())
		addresses[f.Elsewhere] = true
	}
	for _, e := range h.views() {
		if e.Name == text || e.Namespace+"/"+e.Name == text {
			addresses[messages.Address(e.Address)] = true
		}
	}
	var ids []messages.EndpointID
	for address := range addresses {
		if h.Incarnations != nil {
			ids = append(ids, h.Incarnations(address)...)
		}
	}
	f.Endpoints = messages.TakeList(ids)
	return len(addresses) > 0
}

// endpointNames returns names and addresses of endpoints, of a large pool only the first.
func (h *handler) endpointNames() []string {
	const most = 20
	var names []string
	for _, e := range h.views() {
		names = append(names, clean(e.Name), clean(e.Address))
	}
	return names[:min(len(names), most)]
}
