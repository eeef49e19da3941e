package extproc

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/extproc/grpcstatus"
	"github.com/signalbox-epp/signalbox/adapters/extproc/wire"
	"github.com/signalbox-epp/signalbox/engine/records"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// response holds what is known of the response.
type response struct {
	phase  responsePhase // moved under mu
	status int           // HTTP; 0 = no headers have come
	bytes  int64         // of the body that were answered so far
	names  Restorer      // puts the name of the model back; nil = the bytes stay as they are
	id     string        // which the model server made by itself; "" = none was seen
	scan   Scanner       // reads the body; nil = there is nothing to find, none is shown, or no cycle to tell it to
	told   told
	added  added
	queue  messages.QueueTime
}

// added holds the headers that plugins add to the response, by who serves it.
type added struct {
	destinations messages.List[messages.Address]
	headers      messages.List[messages.List[messages.Header]] // by destination; empty = none
}

// by returns the headers for the destination that served, which is the first one if the proxy does not name it.
func (a *added) by(served messages.Address) messages.List[messages.Header] {
	for i, list := range a.headers.All() {
		if served == "" || a.destinations.At(i) == served {
			return list
		}
	}
	return messages.List[messages.Header]{}
}

// told holds what the cycle has been told of a response.
type told struct {
	alive       time.Time // when it was last told that the response lives
	output      time.Time // when the last event with output came; zero = before the first token
	events      int       // with output, the first token's among them
	pace        messages.Pace
	firstToken  bool
	errorStatus int // HTTP status of an error in the body; 0 = it was told of none
}

func (st *stream) onResponseHeaders(e event) error {
	if st.moveResponse(e) == ignored {
		return nil
	}
	status, contentType, encoded := readResponse(&st.in)
	st.response.status = status
	served, local := readServed(&st.in), readLocal(&st.in)
	bypass := st.response.phase == responseLast && e == headersCame
	override := bypass && status >= 200 && status < 400 && local == "" && st.overrides()
	var set messages.List[messages.Header]
	if local == "" {
		set = st.response.added.by(served)
	}
	if st.under != nil && st.under.VerifiesServed {
		set = messages.TakeList(append(set.Append(nil), verified(&st.in)))
	}
	if e == headersCame && !bypass && !encoded {
		st.restores(contentType)
	}
	if e == headersCame && status < 400 && local == "" {
		st.countName(encoded, bypass)
	}
	if err := st.answerResponseHeaders(override, set); err != nil {
		return err
	}
	if st.cycle != nil {
		st.response.told.alive = st.srv.deps.Now()
		st.cycle.Post(messages.ResponseStarted{
			Status: status, Served: served, Local: local, At: st.response.told.alive, Bypasses: bypass,
		})
		upgraded := status == http.StatusSwitchingProtocols // then frames follow, which no scanner reads
		if status < 400 && !upgraded && e == headersCame && (override || !bypass) {
			st.response.scan = st.under.Scan(st.request.api, contentType)
		}
	}
	switch {
	case e == headersEnded:
		st.onResponseEnd()
	case override:
		st.moveResponse(overrideSent)
	case bypass:
		st.moveResponse(bypassBegun)
	}
	return nil
}

// readResponse reads the headers of a response. encoded says that the bytes of its body are not its text. The status
// of an error of gRPC is the HTTP status that it stands for.
func readResponse(in *wire.Request) (status int, contentType string, encoded bool) {
	failed := 0
	in.Headers(func(key, value []byte) bool {
		switch string(key) {
		case ":status":
			status, _ = strconv.Atoi(string(value))
		case grpcstatus.Key:
			failed = grpcstatus.HTTP(value)
		case "content-type":
			contentType = string(value)
		case "content-encoding":
			encoded = encoded || !strings.EqualFold(string(value), "identity")
		}
		return true
	})
	if failed > 0 && status == http.StatusOK {
		status = failed
	}
	return status, contentType, encoded
}

// restores has the name of the model that the client asked for put back into the body, if it was rewritten. Its length
// changes then, so that the answer to the headers removes content-length. A proxy of the light lane shows few bodies,
// and a name that changed from one response to the next would tell a client less than one that does not.
func (st *stream) restores(contentType string) {
	asked, served := st.request.model, st.request.target
	if asked != "" && served != "" && st.under.Restore != nil && st.modes.ResponseBody != wire.BodyGRPC &&
		!announcesLog(st.wire.Context()) {
		st.response.names = st.under.Restore(contentType, served, asked)
	}
}

// countName counts a response that keeps the name of the model that served, though the client asked for another one.
func (st *stream) countName(encoded, bypass bool) {
	if st.request.model == "" || st.request.target == "" || st.response.names != nil {
		return
	}
	var cause string
	switch {
	case encoded:
		cause = nameEncoded
	case st.modes.ResponseBody == wire.BodyGRPC:
		cause = nameInGRPC
	case bypass || announcesLog(st.wire.Context()):
		cause = nameUnseen
	default:
		return // a body of this type names no model
	}
	st.srv.cfg.Metrics.decisions.unrestored.WithLabelValues(cause).Inc()
}

// answerResponseHeaders lets the headers pass and adds the request id, by which a client can ask what happened, how
// long the request waited for room, and what plugins have set. With override it asks the proxy to show the body.
func (st *stream) answerResponseHeaders(override bool, more messages.List[messages.Header]) error {
	if st.id == 0 {
		return st.send(func(r *wire.Response) { r.SetEmptyHeaders(wire.ResponseDirection) })
	}
	answer := wire.HeadersAnswer{
		Direction: wire.ResponseDirection,
		Set:       append(make([]wire.Header, 0, 2), wire.Header{Key: requestIDHeader, Value: st.name}),
	}
	if q := st.response.queue; q.Gated {
		ms := strconv.FormatInt(q.Took.Milliseconds(), 10)
		answer.Set = append(answer.Set, wire.Header{Key: queueHeader, Value: ms})
	}
	for _, h := range more.All() {
		answer.Set = append(answer.Set, wire.Header{Key: h.Name, Value: h.Value})
	}
	if st.response.names != nil {
		answer.Remove = []string{"content-length"}
	}
	if override {
		answer.Override = &wire.Modes{RequestBody: st.modes.RequestBody, ResponseBody: wire.BodyStreamed}
	}
	return st.send(func(r *wire.Response) { r.SetFrame(wire.AppendHeadersAnswer(nil, &answer)) })
}

// onResponseBody returns the bytes back as they are, before the cycle is told of them. The phase moves after the scan,
// because a scanner may panic: a response in whose last chunk it panics can then still be refused.
func (st *stream) onResponseBody(e event) error {
	before := st.response.phase
	if _, v := before.after(e, st.modes.ResponseBody); v == ignored {
		return nil
	}
	if before == responseAwaited {
		st.onHeadlessResponse()
	}
	if st.response.scan != nil {
		st.in.BodyPieces(func(piece []byte) bool {
			st.response.scan.Write(piece)
			return true
		})
	}
	st.moveResponse(e)
	if before == responseAsked {
		st.overrideTaken()
	}
	n := st.in.BodyLen()
	if err := st.answerResponseBody(e); err != nil {
		return err
	}
	st.response.bytes += int64(n)
	st.tellError()
	st.tellProgress(n)
	if e == lastChunkCame {
		st.onResponseEnd()
	} else {
		st.moveResponse(chunkAnswered)
	}
	return nil
}

// onHeadlessResponse begins a response whose headers are not shown to us. Its status stays unknown.
func (st *stream) onHeadlessResponse() {
	if st.cycle != nil {
		st.response.told.alive = st.srv.deps.Now()
		st.cycle.Post(messages.ResponseStarted{Served: readServed(&st.in), At: st.response.told.alive})
		st.response.scan = st.under.Scan(st.request.api, "")
	}
	st.restores("")
}

// answerResponseBody returns the bytes back where the proxy keeps no copy; elsewhere it lets them pass.
func (st *stream) answerResponseBody(came event) error {
	var report []wire.Namespace
	if came == lastChunkCame {
		report = st.reports()
	}
	if st.response.names != nil {
		return st.answerRestored(came, report)
	}
	var e wire.Echo
	switch st.modes.ResponseBody {
	case wire.BodyFullDuplexStreamed:
		e.StartRequest(&st.in)
	case wire.BodyGRPC:
		e.StartMessage(&st.in)
	case wire.BodyNone: // the proxy waits for no answer
		return nil
	default:
		if report == nil {
			return st.send(func(r *wire.Response) { r.SetEmptyBody(wire.ResponseDirection) })
		}
		answer := wire.HeadersAnswer{Direction: wire.ResponseDirection, OnBody: true, Metadata: report}
		return st.send(func(r *wire.Response) { r.SetFrame(wire.AppendHeadersAnswer(nil, &answer)) })
	}
	if report != nil {
		e.Tell(report)
	}
	return st.echo(&e)
}

// reports returns what plugins tell the proxy of the response, whose whole body was looked at, as the metadata of the
// answer to its end; nil = nothing. It is called once.
func (st *stream) reports() []wire.Namespace {
	if st.response.scan == nil || st.under.Report == nil {
		return nil
	}
	usage := st.response.scan.Usage()
	var told []wire.Namespace
	for _, r := range st.under.Report(&usage) {
		st.srv.cfg.Metrics.reports[r.Result].Inc()
		if r.Result != schedule.Told {
			continue
		}
		at := slices.IndexFunc(told, func(n wire.Namespace) bool { return n.Name == r.Namespace })
		if at < 0 {
			at, told = len(told), append(told, wire.Namespace{Name: r.Namespace})
		}
		told[at].Numbers = append(told[at].Numbers, wire.Number{Key: r.Key, Value: r.Value})
	}
	return told
}

// answerRestored answers with the bytes in which the name of the model was put back. What may be the begin of the name
// is held back until the next piece, or the end.
func (st *stream) answerRestored(came event, report []wire.Namespace) error {
	mode, room := st.modes.ResponseBody, st.in.BodyLen()+spareName
	ends := came == lastChunkCame || buffered(mode)
	var body wire.Body
	defer body.Release()
	body.Fill(room, func(dst []byte) []byte {
		st.in.BodyPieces(func(piece []byte) bool {
			dst = st.response.names.Append(dst, piece)
			return true
		})
		if ends {
			dst = st.response.names.Flush(dst)
		}
		return dst
	})
	st.in.Release()
	if mode != wire.BodyFullDuplexStreamed {
		answer := wire.HeadersAnswer{
			Direction: wire.ResponseDirection, OnBody: true, Body: body.Bytes(), Metadata: report,
		}
		return st.send(func(r *wire.Response) { r.SetFrame(wire.AppendHeadersAnswer(nil, &answer)) })
	}
	var e wire.Echo
	e.StartBody(wire.ResponseDirection, &body, came == lastChunkCame)
	if report != nil {
		e.Tell(report)
	}
	return st.echo(&e)
}

// spareName is by how many bytes a piece of a response may become longer in the memory that is made ready for it.
const spareName = 64

// answerHeldBack sends what is held back of a body that trailers end. In other modes nothing but the body's own
// messages can carry it, and a whole body has nothing held back.
func (st *stream) answerHeldBack() error {
	if st.response.names == nil || st.modes.ResponseBody != wire.BodyFullDuplexStreamed {
		return nil
	}
	var body wire.Body
	body.Fill(0, st.response.names.Flush)
	var e wire.Echo
	e.StartBody(wire.ResponseDirection, &body, false)
	return st.echo(&e)
}

// tellError tells the cycle of an error in the body. It runs before tellProgress, so that the cycle does not take the
// error for the first token.
func (st *stream) tellError() {
	if st.response.scan == nil || st.response.told.errorStatus != 0 {
		return
	}
	if status := st.response.scan.ErrorStatus(); status != 0 {
		st.response.told.errorStatus = status
		st.cycle.Post(messages.ErrorSeen{Status: status})
	}
}

// tellProgress tells the cycle of n more bytes: the first that may have output are the first token, later ones show
// that the response lives.
func (st *stream) tellProgress(n int) {
	if st.cycle == nil || n == 0 {
		return
	}
	told := &st.response.told
	if !told.firstToken {
		if st.response.scan != nil && !st.response.scan.Began() {
			return
		}
		told.firstToken, told.alive = true, st.srv.deps.Now()
		told.output, told.events = told.alive, 1
		st.pace(told.alive)
		st.cycle.Post(messages.FirstTokenSeen{At: told.alive, ResponseID: st.responseID()})
		return
	}
	now := st.srv.deps.Now()
	st.pace(now)
	if now.Sub(told.alive) >= st.srv.progressAfter() {
		told.alive = now
		st.cycle.Post(messages.ResponseProgressed{At: now, ResponseBytes: st.response.bytes})
	}
}

// pace counts the events with output that have come by now, each by the time since the one before. Those of one piece
// came at once.
func (st *stream) pace(now time.Time) {
	told := &st.response.told
	if st.response.scan == nil {
		return
	}
	for all := st.response.scan.Events(); told.events < all; told.events++ {
		records.AddPace(&told.pace, now.Sub(told.output))
		told.output = now
	}
}

// progressEvery is the longest time between two reports that a response lives. A short idle limit shortens it.
const progressEvery = 10 * time.Second

// progressAfter returns how often the cycle hears that a response lives: at least four times within its idle limit.
func (s *Server) progressAfter() time.Duration {
	if s.cfg.ResponseIdle <= 0 {
		return progressEvery
	}
	return min(progressEvery, s.cfg.ResponseIdle/4)
}

// responseID returns the id of the response, or "" if none was seen. It is "" too for an id that the model server
// derived from the client's, because a record is found by that one anyway.
func (st *stream) responseID() string {
	if st.response.id != "" || st.response.scan == nil {
		return st.response.id
	}
	if id := st.response.scan.ID(); id != nil && !records.IsMadeOf(id, st.request.facts.clientID) {
		st.response.id = string(id)
	}
	return st.response.id
}

func (st *stream) onResponseTrailers() error {
	if st.moveResponse(trailersCame) == ignored {
		return nil
	}
	st.tellFailedCall()
	if err := st.answerHeldBack(); err != nil {
		return err
	}
	answer := func(r *wire.Response) { r.SetEmptyTrailers(wire.ResponseDirection) }
	if report := st.reports(); report != nil {
		answer = func(r *wire.Response) {
			r.SetFrame(wire.AppendTrailersAnswer(nil, wire.ResponseDirection, report))
		}
	}
	if err := st.send(answer); err != nil {
		return err
	}
	st.onResponseEnd()
	return nil
}

// tellFailedCall tells the cycle of an error that the trailers tell, as those of gRPC do.
func (st *stream) tellFailedCall() {
	told := &st.response.told
	if st.cycle == nil || told.errorStatus != 0 {
		return
	}
	st.in.Headers(func(key, value []byte) bool {
		if string(key) == grpcstatus.Key {
			told.errorStatus = grpcstatus.HTTP(value)
		}
		return true
	})
	if told.errorStatus != 0 {
		st.cycle.Post(messages.ErrorSeen{Status: told.errorStatus})
	}
}

// onResponseEnd tells the cycle of the end, after it was answered.
func (st *stream) onResponseEnd() {
	if st.response.phase == responseAsked { // trailers without the body that was asked for
		st.overrideIgnored()
	}
	st.moveResponse(endAnswered)
	if st.cycle == nil {
		return
	}
	end := messages.ResponseEnded{
		At: st.srv.deps.Now(), ResponseBytes: st.response.bytes, Pace: st.response.told.pace,
	}
	if st.response.scan != nil {
		end.Usage, end.ResponseID = st.response.scan.Usage(), st.responseID()
	}
	st.cycle.Post(end)
}
