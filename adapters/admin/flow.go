package admin

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-epp/signalbox/engine/window"
	"github.com/signalbox-epp/signalbox/messages"
)

// FlowConfig says what /debug/flow shows. All of it is required, or nothing.
type FlowConfig struct {
	Capacity messages.Port[messages.CapacityMsg] // nil = the path is not there
	Ends     func() []EndView                    // of waits so far, in the order in which they are shown
	// Room returns where there is room, in the order in which that is shown, and the name of the detector that says so;
	// "" = requests do not wait.
	Room func() ([]RoomView, string)
}

// FlowPage is the JSON form of what waits for room, and all that the text is made of.
type FlowPage struct {
	Detector string     `json:"detector"` // that says where there is room; "" = requests do not wait
	Waiting  HeldView   `json:"waiting"`
	Limits   HeldView   `json:"limits"`       // of all bands together; 0 = none
	Rate     *float64   `json:"per_second"`   // requests that leave the line with a pick; null = not known yet
	Limiter  string     `json:"usage_limit"`  // type of the policy that sets ceilings; "" = none does
	Panics   uint64     `json:"panics"`       // calls of policies that panicked
	Trying   *TurnView  `json:"trying"`       // the request whose turn it is; null = none
	Full     []FullView `json:"without_room"` // classes of requests that have none, as far as is known
	Bands    []BandView `json:"bands"`

	Ends      []EndView  `json:"ends"`      // of waits, so far
	Endpoints []RoomView `json:"endpoints"` // of the pool
}

// HeldView is how many requests wait, and the bytes of their bodies.
type HeldView struct {
	Requests int64 `json:"requests"`
	Bytes    int64 `json:"bytes"`
}

// TurnView is a request whose turn it is, or will be.
type TurnView struct {
	ID            string   `json:"id"`
	FairnessID    string   `json:"fairness_id"`
	Priority      int      `json:"priority"`
	WaitedSeconds *seconds `json:"waited_seconds,omitempty"` // since it came
}

// FullView is what waits of the requests that may use the same endpoints.
type FullView struct {
	Class    uint64 `json:"class"`
	Requests int64  `json:"requests"`
	Next     string `json:"next"` // id of the one that is tried first; "" = none waits
}

// BandView is what waits of one priority under the same policies.
type BandView struct {
	Priority      int          `json:"priority"`
	Older         bool         `json:"older"` // its policies are of an earlier configuration
	Waiting       HeldView     `json:"waiting"`
	Limits        HeldView     `json:"limits"`         // 0 = none
	OldestSeconds seconds      `json:"oldest_seconds"` // of the request that came first; 0 = none, or unknown
	Ceiling       float64      `json:"ceiling"`        // share of an endpoint's capacity that its requests may fill
	Policies      PolicyView   `json:"policies"`
	Served        uint64       `json:"served"`  // turns, but for those in vain
	Service       int64        `json:"service"` // tokens that all its flows were charged
	Next          *TurnView    `json:"next"`    // that is dispatched next; null = none may have room
	FlowsKnown    int          `json:"flows_known"`
	Flows         []FlowOfBand `json:"flows"` // the longest first
}

// PolicyView names the types of a band's policies.
type PolicyView struct {
	Ordering     string `json:"ordering"`
	Queue        string `json:"queue"`
	Fairness     string `json:"fairness"`
	Displacement string `json:"displacement"`
	BuiltIn      bool   `json:"built_in"` // built-in ones are in force instead, because these panicked
}

// FlowOfBand is what a band knows of a flow.
type FlowOfBand struct {
	FairnessID    string   `json:"fairness_id"` // "" if shared
	Shared        bool     `json:"shared"`      // by all ids beyond those that the band tells apart
	Weight        float64  `json:"weight"`
	Waiting       HeldView `json:"waiting"`
	OldestSeconds seconds  `json:"oldest_seconds"`
	Service       int64    `json:"service"` // tokens that it was charged
	Share         float64  `json:"share"`   // of what all flows of the band were charged
}

// EndView is how many waits of a priority have ended in one way.
type EndView struct {
	Priority string `json:"priority"`
	Outcome  string `json:"outcome"`
	Requests uint64 `json:"requests"`
}

// RoomView is what is known of the room at an endpoint.
type RoomView struct {
	Address          string      `json:"address"`
	InflightRequests int         `json:"inflight_requests"`
	InflightTokens   int         `json:"inflight_tokens"`
	Room             *bool       `json:"room"`   // for one request more; null = requests do not wait
	Window           *WindowView `json:"window"` // null = the detector has none
}

// WindowView is how much load an endpoint takes before work only waits there.
type WindowView struct {
	Requests int      `json:"requests"` // 0 = no bound
	Tokens   int      `json:"tokens"`   // 0 = no bound
	Learned  bool     `json:"learned"`  // false = nothing is known yet
	Why      *WhyView `json:"why"`      // null = nothing is known yet
}

// WhyView says what a window was changed by last.
type WhyView struct {
	Cause      string  `json:"cause"` // as metrics have it
	From       int     `json:"from"`  // requests of the window before; 0 = there was none
	Queue      float64 `json:"queue"` // requests that waited at the endpoint, as it seemed
	AgeSeconds seconds `json:"age_seconds"`

	cause window.Cause
}

// Why returns the view of a reason at a time.
func Why(of window.Why, now time.Time) *WhyView {
	return &WhyView{of.Cause.String(), of.From, of.Queue, seconds(now.Sub(of.At)), of.Cause}
}

// flowsShown says how many flows of a band are shown.
var flowsShown = limits{usual: 20, most: 1000}

func (h *handler) flow(w http.ResponseWriter, r *http.Request) {
	if h.Flow.Capacity == nil {
		fail(w, http.StatusNotFound, "not-shown", "this process does not show what waits")
		return
	}
	n, ok := howMany(w, r, flowsShown, "flows")
	if !ok {
		return
	}
	select {
	case h.asking <- struct{}{}:
		defer func() { <-h.asking }()
	default:
		fail(w, http.StatusServiceUnavailable, "busy", "others are asking for this page; ask again")
		return
	}
	a := make(answer, 1)
	m, ok := h.await(w, r, a, "capacity", h.Flow.Capacity.Post(messages.FlowsQueried{Most: n, Admin: a}))
	if !ok {
		return
	}
	p := h.flowPage(m.(messages.FlowsAnswered))
	if wantsJSON(r) {
		writeJSON(w, http.StatusOK, p)
		return
	}
	plain(w, http.StatusOK, p.text())
}

func (h *handler) flowPage(got messages.FlowsAnswered) *FlowPage {
	p := &FlowPage{
		Waiting: HeldView(got.Waiting), Limits: HeldView(got.Limits), Panics: got.Panics, Limiter: got.UsageLimit,
		Full: []FullView{}, Bands: []BandView{}, Ends: []EndView{}, Endpoints: []RoomView{},
	}
	if got.Rate > 0 {
		p.Rate = &got.Rate
	}
	if t := got.Trying; t.Request != 0 {
		p.Trying = h.turn(t.Request, t.Flow)
		p.Trying.WaitedSeconds = known(t.Waited, true)
	}
	for _, c := range got.Full.All() {
		v := FullView{Class: c.Class, Requests: c.Waiting}
		if c.Next != 0 {
			v.Next = h.FormatID(c.Next)
		}
		p.Full = append(p.Full, v)
	}
	for _, b := range got.Bands.All() {
		p.Bands = append(p.Bands, h.band(&b))
	}
	room, detector := h.Flow.Room()
	p.Detector, p.Endpoints = detector, append(p.Endpoints, room...)
	p.Ends = append(p.Ends, h.Flow.Ends()...)
	return p
}

func (h *handler) turn(id messages.RequestID, of messages.FlowKey) *TurnView {
	return &TurnView{ID: h.FormatID(id), FairnessID: of.Fairness, Priority: of.Priority}
}

func (h *handler) band(b *messages.BandState) BandView {
	v := BandView{
		Priority: b.Priority, Older: b.Older, Waiting: HeldView(b.Waiting), Limits: HeldView(b.Limits),
		OldestSeconds: seconds(b.Oldest), Ceiling: b.Ceiling, Policies: PolicyView(b.Policies),
		Served: b.Served, Service: b.Service,
		FlowsKnown: b.Known, Flows: []FlowOfBand{},
	}
	if b.Next.Request != 0 {
		v.Next = h.turn(b.Next.Request, messages.FlowKey{Fairness: b.Next.Flow, Priority: b.Priority})
	}
	for _, f := range b.Flows.All() {
		v.Flows = append(v.Flows, FlowOfBand{
			FairnessID: f.Fairness, Shared: f.Shared, Weight: f.Weight, Waiting: HeldView(f.Waiting),
			OldestSeconds: seconds(f.Oldest), Service: f.Service,
			Share: float64(f.Service) / float64(max(b.Service, 1)),
		})
	}
	return v
}

func (p *FlowPage) text() string {
	var b strings.Builder
	if p.Detector == "" {
		field(&b, "detector", "none: requests do not wait for room under the configuration in force")
	} else {
		field(&b, "detector", clean(p.Detector))
	}
	field(&b, "waiting", p.Waiting.text()+"; "+p.Limits.limit())
	rate := "not known yet"
	if p.Rate != nil {
		rate = digits(*p.Rate) + " requests a second leave the line"
	}
	field(&b, "drain", rate)
	if p.Limiter != "" {
		field(&b, "usage limit", clean(p.Limiter))
	}
	field(&b, "turn", p.Trying.text())
	if p.Panics > 0 {
		field(&b, "panics", plural(int(p.Panics), "call")+" of policies panicked")
	}
	for _, f := range p.Full {
		if f.Requests > 0 {
			requests := plural(int(f.Requests), "request")
			field(&b, "without room", fmt.Sprintf("%s of class %d, of which %s is next", requests, f.Class, f.Next))
		}
	}
	for i := range p.Bands {
		p.Bands[i].write(&b)
	}
	p.writeEnds(&b)
	p.writeRoom(&b)
	return b.String()
}

func (h HeldView) text() string { return plural(int(h.Requests), "request") + ", " + size(h.Bytes) }

// limit returns limits as text.
func (h HeldView) limit() string {
	var all []string
	if h.Requests > 0 {
		all = append(all, plural(int(h.Requests), "request"))
	}
	if h.Bytes > 0 {
		all = append(all, size(h.Bytes))
	}
	if len(all) == 0 {
		return "no limit"
	}
	return "at most " + strings.Join(all, ", ")
}

func (t *TurnView) text() string {
	if t == nil {
		return "-"
	}
	text := fmt.Sprintf("%s of %s, priority %d", t.ID, flowName(t.FairnessID, false), t.Priority)
	if t.WaitedSeconds != nil {
		text += ", after " + t.WaitedSeconds.text()
	}
	return text
}

const flowColumns = 40

// flowName returns the name of a flow as text shows it.
func flowName(id string, shared bool) string {
	if shared || id == "" {
		return "(all others)"
	}
	return clip(clean(id), flowColumns)
}

func (v *BandView) write(b *strings.Builder) {
	older := ""
	if v.Older {
		older = ", of an earlier configuration"
	}
	fmt.Fprintf(b, "\npriority %d%s\n", v.Priority, older)
	waiting := v.Waiting.text() + "; " + v.Limits.limit()
	if v.OldestSeconds > 0 {
		waiting += "; the oldest for " + v.OldestSeconds.text()
	}
	field(b, "  waiting", waiting)
	of := &v.Policies
	policies := strings.Join([]string{
		clean(of.Fairness), clean(of.Ordering), clean(of.Displacement), clean(of.Queue),
	}, ", ")
	if of.BuiltIn {
		policies += "; they panicked, and built-in ones are in force"
	}
	field(b, "  policies", policies)
	if v.Ceiling < 1 {
		field(b, "  ceiling", digits(100*v.Ceiling)+"% of an endpoint's capacity")
	}
	field(b, "  served", plural(int(v.Served), "turn")+", "+plural(int(v.Service), "token"))
	field(b, "  next", v.Next.text())
	if len(v.Flows) == 0 {
		return
	}
	rows := [][]string{{"flow", "waiting", "bytes", "oldest", "weight", "tokens", "share"}}
	for i := range v.Flows {
		f := &v.Flows[i]
		rows = append(rows, []string{
			flowName(f.FairnessID, f.Shared), strconv.FormatInt(f.Waiting.Requests, 10), size(f.Waiting.Bytes),
			short(time.Duration(f.OldestSeconds)), strconv.FormatFloat(f.Weight, 'g', 4, 64),
			strconv.FormatInt(f.Service, 10), fmt.Sprintf("%.0f%%", 100*f.Share),
		})
	}
	table(b, "  ", "lrrrrrr", rows)
	if more := v.FlowsKnown - len(v.Flows); more > 0 {
		fmt.Fprintf(b, "  %s more; flows shows more, at most %d\n", plural(more, "flow"), flowsShown.most)
	}
}

// writeEnds writes how waits have ended.
func (p *FlowPage) writeEnds(b *strings.Builder) {
	if len(p.Ends) == 0 {
		return
	}
	b.WriteString("\nends so far\n")
	rows := [][]string{{"priority", "outcome", "requests"}}
	for _, e := range p.Ends {
		rows = append(rows, []string{clean(e.Priority), clean(e.Outcome), strconv.FormatUint(e.Requests, 10)})
	}
	table(b, "  ", "rlr", rows)
}

// writeRoom writes where there is room.
func (p *FlowPage) writeRoom(b *strings.Builder) {
	if len(p.Endpoints) == 0 {
		b.WriteString("\nno endpoints\n")
		return
	}
	b.WriteString("\nroom at the endpoints\n")
	rows := [][]string{{"endpoint", "inflight", "tokens", "room", "window"}}
	reasons := [][]string{{"endpoint", "from", "ago", "because"}}
	for i := range p.Endpoints {
		e := &p.Endpoints[i]
		room := "-"
		if e.Room != nil {
			room = map[bool]string{true: "yes", false: "no"}[*e.Room]
		}
		address := clip(clean(e.Address), addressColumns)
		rows = append(rows, []string{
			address, strconv.Itoa(e.InflightRequests), strconv.Itoa(e.InflightTokens), room, e.Window.text(),
		})
		if e.Window != nil && e.Window.Why != nil {
			why := e.Window.Why
			reasons = append(reasons, []string{address, why.from(), why.AgeSeconds.text(), why.text()})
		}
	}
	table(b, "  ", "lrrll", rows)
	if len(reasons) > 1 {
		b.WriteString("\nwhat changed windows last\n")
		table(b, "  ", "lrrl", reasons)
	}
}

func (w *WindowView) text() string {
	if w == nil {
		return "-"
	}
	if w.Requests == 0 {
		return "no bound yet"
	}
	text := plural(w.Requests, "request")
	if w.Tokens > 0 {
		text += ", " + plural(w.Tokens, "token")
	}
	if !w.Learned {
		text += ", not learned yet"
	}
	return text
}

// from returns how many requests the window before took.
func (w *WhyView) from() string {
	if w.From == 0 {
		return "-"
	}
	return plural(w.From, "request")
}

// text returns the reason in plain words; "" = the cause has none.
func (w *WhyView) text() string {
	waited := "no request waited"
	if w.Queue > 0 {
		waited = digits(w.Queue) + " requests waited"
	}
	switch w.cause {
	case window.Begun:
		if w.From > 0 {
			return "the server was ejected, and begins anew"
		}
		return "it is new, and takes what was in flight"
	case window.FirstTokens:
		return "first tokens came as if " + waited
	case window.Page:
		return "by the metrics page, " + waited
	case window.Refusal:
		return "the server refused a request because it was full"
	case window.Blind:
		return "nothing tells whether requests wait, and so it grows"
	}
	return ""
}
