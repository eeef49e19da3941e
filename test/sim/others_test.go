package sim_test

import (
	"strconv"
	"time"

	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// othersMsg is what discovery and the admin side are told.
type othersMsg interface{ othersMsg() }

type othersCame struct{}

// setChanges is discovery's timer.
type setChanges struct{}

// fileChanges is the timer of the configuration's file.
type fileChanges struct{}

// somebodyAsks is the admin side's timer.
type somebodyAsks struct{}

func (othersCame) othersMsg()   {}
func (setChanges) othersMsg()   {}
func (fileChanges) othersMsg()  {}
func (somebodyAsks) othersMsg() {}

// others stand in for discovery and for the admin side.
type others struct {
	*world
	absent  map[int]bool
	labels  map[int]int
	version uint64
}

func newOthers(w *world) *others {
	return &others{world: w, absent: map[int]bool{}, labels: map[int]int{}}
}

func (o *others) Receive(ctx runtime.Context[othersMsg], m othersMsg) {
	switch m.(type) {
	case othersCame:
		o.found(servers)
		ctx.After(time.Second, setChanges{})
		ctx.After(time.Second, fileChanges{})
		ctx.After(time.Second, somebodyAsks{})
	case setChanges:
		o.onSetChanges(ctx)
	case fileChanges:
		o.onFileChanges(ctx)
	case somebodyAsks:
		o.onSomebodyAsks(ctx)
	}
}

// found tells the pool the set: of the first n servers those that are there.
func (o *others) found(n int) {
	o.version++
	var specs []messages.EndpointSpec
	for i := range n {
		if o.absent[i] {
			continue
		}
		specs = append(specs, messages.EndpointSpec{
			Name: "server-" + strconv.Itoa(i), Namespace: "sim", Address: addressOf(i),
			Labels: messages.MapOf(map[string]string{"round": strconv.Itoa(o.labels[i]), "llm-d.ai/role": role(i)}),
		})
	}
	o.picker.Discovery().Post(messages.EndpointsDiscovered{Version: o.version, Endpoints: messages.TakeList(specs)})
}

// role is what a server is for: the last one takes no requests.
func role(server int) string {
	if server == servers-1 {
		return "prefill"
	}
	return "both"
}

func (o *others) onSetChanges(ctx runtime.Context[othersMsg]) {
	if o.faults.off {
		return
	}
	i := o.dice.IntN(servers)
	switch p := o.dice.Float64(); {
	case p < .6:
		o.absent[i] = !o.absent[i]
		o.found(servers)
	case p < .75:
		o.labels[i]++
		o.found(servers)
	case p < .85: // gone and back in the same breath, under the requests that are on it
		i = o.busiest()
		was := o.absent[i]
		o.absent[i] = true
		o.found(servers)
		o.absent[i] = was
		o.found(servers)
	case p < .95:
		o.faults.drew(oldSet)
		o.picker.Discovery().Post(messages.EndpointsDiscovered{Version: o.version - 1})
	default:
		o.faults.drew(emptySet)
		o.found(0)
	}
	ctx.After(o.upTo(2*time.Second), setChanges{})
}

// onFileChanges brings another configuration into force, under the requests that run.
func (o *others) onFileChanges(ctx runtime.Context[othersMsg]) {
	if o.faults.off {
		return
	}
	changed := scraping
	plan, queueing := o.plan()
	changed.Anew = o.chance(.5)
	o.picker.Bring(o.picker.Prepare(o.configurations, plan, queueing, changed))
	ctx.After(o.upTo(2*time.Second), fileChanges{})
}

// busiest is the server with the most requests on it.
func (o *others) busiest() int {
	best, most := 0, 0
	for i := range servers {
		if e := o.pool.Snapshot().ByAddress(addressOf(i)); e != nil && e.Inflight() > most {
			best, most = i, e.Inflight()
		}
	}
	if most > 0 {
		o.faults.drew(backUnder)
	}
	return best
}

// asker is the address that a query is answered to.
type asker struct{ query *query }

func (a asker) Tell(messages.AdminMsg) bool {
	a.query.answers++
	return true
}

func (o *others) onSomebodyAsks(ctx runtime.Context[othersMsg]) {
	if !o.faults.off {
		o.ask()
		o.wantMemory()
		o.askWhatWaits()
		if o.crowd.left == 0 { // the last clients are there
			o.picker.CloseLine()
		}
		ctx.After(o.upTo(400*time.Millisecond), somebodyAsks{})
	}
}

// wantMemory has requests make way for a body that does not fit.
func (o *others) wantMemory() {
	d := &doorway{world: o.world}
	key := messages.FlowKey{Fairness: "large", Priority: o.dice.IntN(3) - 1}
	if !o.picker.MakeWay(messages.MemoryRequested{Flow: key, Bytes: 1 + o.dice.Int64N(5000), Stream: d}) {
		o.faults.drew(inboxMemory)
	}
}

// doorway is a stream whose body does not fit.
type doorway struct {
	*world
	answers int
}

func (d *doorway) Tell(m messages.StreamMsg) bool {
	if d.answers++; d.answers > 1 {
		d.Errorf("a stream that wants memory is answered %d times, the last time %+v", d.answers, m)
	}
	return true
}

// ask asks the recorder for one request, for those of a client, for the newest, or for what loops did last.
func (o *others) ask() {
	q := &query{of: "recorder"}
	ask := messages.RequestQueried{Newest: 1 + o.dice.IntN(20), Admin: asker{q}}
	asked := messages.RecorderMsg(ask)
	switch o.dice.IntN(4) {
	case 0:
		ask.Request = 1 + messages.RequestID(o.dice.IntN(len(o.ledger.lines)+5))
		asked = ask
	case 1:
		ask.IDs = messages.ListOf("client-" + strconv.Itoa(o.dice.IntN(len(o.ledger.lines)+5)/2))
		asked = ask
	case 2:
		asked = messages.RingsQueried{Loop: o.dice.IntN(loops+1) - 1, Newest: 10, Admin: asker{q}}
	}
	if o.picker.Recorder().Post(asked) {
		o.ledger.queries = append(o.ledger.queries, q)
	} else {
		o.faults.drew(inboxQuery)
	}
}

// askWhatWaits asks capacity.
func (o *others) askWhatWaits() {
	q := &query{of: "capacity"}
	if o.picker.Capacity().Post(messages.FlowsQueried{Most: 3, Admin: asker{q}}) {
		o.ledger.queries = append(o.ledger.queries, q)
	} else {
		o.faults.drew(inboxQuery)
	}
}

func (o *others) Stopped(runtime.Context[othersMsg]) {}
