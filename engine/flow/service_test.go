package flow_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/messages"
)

// tenant sends requests of one size. It always has some waiting, but while it is idle.
type tenant struct {
	name           string
	prompt, output int
	weight         float64
	idle           bool

	waits int
	given float64 // tokens by its weight
	gaps  map[*tenant]*gap
}

// gap is how much more a tenant was given than another one, since both of them have had requests waiting.
type gap struct{ since, most float64 }

// running is a request that a machine works on.
type running struct {
	tenant  *tenant
	left    int // tokens of its output that are still to come
	untold  flow.Tokens
	waited  bool
	guessed int // tokens that its prompt was taken to have, if it waited
}

// machine works on so many requests at a time, which give so many tokens a step. It has no time of its own.
type machine struct {
	*testing.T
	queues  *flow.Queues
	slots   int
	pace    int
	dice    *rand.Rand
	tenants []*tenant
	running []*running
	made    messages.RequestID
	ahead   int // requests that each tenant has waiting
	wrong   bool
}

func newMachine(t *testing.T, fair string, seed uint64, slots int, tenants ...*tenant) *machine {
	b := band(fcfs, fair, flow.Limits{})
	b.Weights = map[string]float64{}
	for _, x := range tenants {
		if x.weight == 0 {
			x.weight = 1
		}
		b.Weights[x.name] = x.weight
		x.gaps = map[*tenant]*gap{}
		for _, y := range tenants {
			x.gaps[y] = &gap{}
		}
	}
	return &machine{
		T: t, queues: flow.New(everywhere(b, flow.Limits{})), slots: slots, pace: 50, ahead: 3, tenants: tenants,
		dice: rand.New(rand.NewPCG(seed, 1)),
	}
}

// step has each request give tokens, and tells of them; then requests come, and are dispatched.
func (m *machine) step() {
	for _, r := range m.running {
		n := min(m.pace, r.left)
		r.left -= n
		r.untold.Output += int64(n)
		m.give(r.tenant, n)
		if r.left == 0 {
			if r.waited {
				r.untold.Prompt += int64(r.tenant.prompt - r.guessed)
			} else {
				r.untold.Prompt = int64(r.tenant.prompt)
			}
		}
		if r.waited || r.left == 0 {
			m.queues.Charge(messages.FlowKey{Fairness: r.tenant.name}, r.untold)
			r.untold = flow.Tokens{}
		}
	}
	m.running = slices.DeleteFunc(m.running, func(r *running) bool { return r.left == 0 })
	for _, i := range m.dice.Perm(len(m.tenants)) {
		m.comes(m.tenants[i])
	}
	for len(m.running) < m.slots {
		e := m.queues.Next(anyRoom)
		if e == nil {
			break
		}
		i := slices.IndexFunc(m.tenants, func(x *tenant) bool { return x.name == e.Flow.Fairness })
		x := m.tenants[i]
		x.waits--
		m.runs(&running{tenant: x, left: x.output, waited: true, guessed: e.Prompt})
		m.comes(x)
	}
	m.look()
}

func (m *machine) runs(r *running) {
	m.running = append(m.running, r)
	m.give(r.tenant, r.tenant.prompt)
}

func (m *machine) give(x *tenant, tokens int) { x.given += float64(tokens) / x.weight }

// comes has a tenant's requests wait, or run at once if nothing waits and there is room. Prompts may be taken to have
// half or twice the tokens that they have.
func (m *machine) comes(x *tenant) {
	for !x.idle && x.waits < m.ahead {
		if m.queues.Total() == (flow.Total{}) && len(m.running) < m.slots {
			m.runs(&running{tenant: x, left: x.output})
			continue
		}
		m.made++
		guess := x.prompt
		if m.wrong {
			guess = []int{x.prompt / 2, x.prompt, 2 * x.prompt}[m.dice.IntN(3)]
		}
		m.queues.Push(&flow.Entry{
			Request: m.made, Flow: messages.FlowKey{Fairness: x.name}, Wait: flow.Wait{Arrived: start, Deadline: start},
			Work: flow.Work{Prompt: guess},
		})
		x.waits++
	}
}

// look notes the gaps between tenants that have had requests waiting all the time.
func (m *machine) look() {
	for _, x := range m.tenants {
		for _, y := range m.tenants {
			g, more := x.gaps[y], x.given-y.given
			if x.waits == 0 || y.waits == 0 {
				g.since = math.NaN()
				continue
			}
			if math.IsNaN(g.since) {
				g.since = more
			}
			g.most = max(g.most, more-g.since)
		}
	}
}

// bound is what no gap between two tenants exceeds: what the slots hold of the requests of both. A prompt that was
// taken for a larger one counts as that until its request ends.
func (m *machine) bound(x, y *tenant) (sum float64) {
	for _, one := range []*tenant{x, y} {
		prompt := one.prompt
		if m.wrong {
			prompt *= 2
		}
		sum += float64(m.slots*(prompt+one.output)) / one.weight
	}
	return sum
}

// jain returns how evenly the tenants were served: 1 = all alike.
func (m *machine) jain() float64 {
	sum, squares := 0.0, 0.0
	for _, x := range m.tenants {
		sum += x.given
		squares += x.given * x.given
	}
	return sum * sum / (float64(len(m.tenants)) * squares)
}

func (m *machine) checkGaps() {
	m.Helper()
	for _, x := range m.tenants {
		for _, y := range m.tenants {
			most, bound := x.gaps[y].most, m.bound(x, y)
			if most > bound {
				m.Errorf("%s was given %.0f tokens more than %s, want %.0f at most", x.name, most, y.name, bound)
			}
			if x.given < 5*bound {
				m.Errorf("%s was given %.0f tokens, which shows nothing", x.name, x.given)
			}
		}
	}
}

// Tenants whose requests have 100 tokens and such whose requests have 10 000 are given the same, at all times.
func TestTenantsOfAllSizesAreServedAlike(t *testing.T) {
	for seed := range uint64(3) {
		for _, wrong := range []bool{false, true} {
			t.Run(fmt.Sprintf("seed %d, wrong estimates %t", seed, wrong), func(t *testing.T) {
				m := newMachine(t, token, seed, 8,
					&tenant{name: "small", prompt: 50, output: 50}, &tenant{name: "small too", prompt: 50, output: 50},
					&tenant{name: "large", prompt: 5000, output: 5000},
					&tenant{name: "talker", prompt: 100, output: 9900},
					&tenant{name: "reader", prompt: 9900, output: 100})
				m.wrong = wrong
				for range 10_000 {
					m.step()
				}
				m.checkGaps()
				if j := m.jain(); j < .95 {
					t.Errorf("Jain's index %v, want 0.95", j)
				}
			})
		}
	}
}

// Tenants come and go: what one leaves idle is not saved, what another one uses of it is not held against that one, and
// weights hold.
func TestGapsAreBoundedAfterIdleTimes(t *testing.T) {
	for seed := range uint64(5) {
		m := newMachine(t, token, seed, 4,
			&tenant{name: "small", prompt: 50, output: 50, weight: 2},
			&tenant{name: "large", prompt: 5000, output: 5000},
			&tenant{name: "other", prompt: 500, output: 500})
		for range 20 {
			for _, x := range m.tenants {
				x.idle = m.dice.IntN(3) == 0
			}
			for range 200 + m.dice.IntN(2000) {
				m.step()
			}
		}
		m.checkGaps()
	}
}

// A tenant whose requests ran while nothing waited has used what was idle. What it used last counts, for it may still
// be running.
func TestRequestsThatNeverWaitedAreCharged(t *testing.T) {
	q, w := flow.New(everywhere(band(fcfs, token, flow.Limits{}), flow.Limits{})), new(waiting)
	for range 1000 {
		q.Charge(messages.FlowKey{Fairness: "busy"}, flow.Tokens{Prompt: 100, Output: 900})
	}
	entry := func(fairness string) *flow.Entry {
		e := w.of(fairness, 0)
		e.Prompt = 100
		return e
	}
	for range 30 {
		push(t, q, entry("busy"), entry("late"))
	}
	order := drain(q)
	first := slices.IndexFunc(order, func(s string) bool { return s[:1] == "b" })
	if first < 9 || first > 11 {
		t.Errorf("late goes first %d times, want 10: what busy was charged last; %v", first, order)
	}
}

// Requests that do not wait are charged to no flow in bands whose fairness does not ask.
func TestOnlyMetersAreCharged(t *testing.T) {
	for name, want := range map[string]bool{strict: false, robin: false, token: true, program: true} {
		s := everywhere(band(fcfs, name, flow.Limits{}), flow.Limits{})
		if got := s.Metered(0); got != want {
			t.Errorf("%s: requests say what they use: %t, want %t", name, got, want)
		}
	}
}

// What flows were charged counts on under another configuration of the same policies.
func TestAccountsOutliveConfigurations(t *testing.T) {
	s := everywhere(band(fcfs, token, flow.Limits{}), flow.Limits{})
	q, w := flow.New(s), new(waiting)
	push(t, q, w.of("a", 0))
	q.Next(anyRoom)
	q.Charge(messages.FlowKey{Fairness: "a"}, flow.Tokens{Output: 5})
	s.Default.Limits.Requests = 100
	q.Configure(s)
	push(t, q, w.of("a", 0), w.of("b", 0))
	if got, want := drain(q), []string{"b3", "a2"}; !slices.Equal(got, want) {
		t.Errorf("dispatched %v, want %v", got, want)
	}
}

// Requests that come wait behind those that go before them: of their own priority or a higher one, or of any while a
// least share may bring those of a lower one forward.
func TestFirstOfThoseThatWait(t *testing.T) {
	s := everywhere(band(fcfs, robin, flow.Limits{}), flow.Limits{})
	low := s.Negative
	low.MinShare = .1
	s.Bands = map[int]flow.BandSettings{-5: low}
	q, w := flow.New(s), new(waiting)
	first := func(want int) {
		t.Helper()
		if got := q.First(); got != want {
			t.Errorf("the first priority is %d, want %d", got, want)
		}
	}
	first(math.MinInt)
	push(t, q, w.of("a", -1))
	first(-1)
	push(t, q, w.of("a", 3), w.of("a", 2))
	first(3)
	push(t, q, w.of("a", -5))
	first(math.MaxInt)
	q.Next(anyRoom)
	first(math.MaxInt)
	drain(q)
	first(math.MinInt)
}
