package modelserver

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/messages"
)

// maxAdapters bounds the adapters that one page can name.
const maxAdapters = 1024

// Scan reads attributes that are built in from a metrics page: Prometheus text 0.0.4 or 1.0.0, or OpenMetrics. Others
// are not looked for. engine is the name of the engine. If it is unknown or "", the first engine of which the page has
// a series is taken. A server that runs several engines behind one page (data parallel) has one sample of each series
// per engine, or, of SGLang, one per rank of each, of which the first counts: requests and blocks are summed, KV usage
// is averaged, and one engine that sleeps makes the server asleep.
//
// A sample that is negative, infinite, NaN or no number at all counts as absent. So does a last line without a line
// end, because it may have been cut off. Scan keeps no part of page.
func Scan(page []byte, engine string, want []attributes.Attribute) messages.Reading {
	return builtIn.scan(page, engine, wantedOf(want))
}

func (k known) scan(page []byte, engine string, want wanted) messages.Reading {
	s := scan{known: k, engine: k.named(engine), want: want}
	for len(page) > 0 {
		end := bytes.IndexByte(page, '\n')
		if end < 0 {
			break
		}
		s.line(page[:end])
		page = page[end+1:]
	}
	for i := range s.ranks {
		s.tally[s.ranks[i].of.tells].join(s.ranks[i].tally)
	}
	return s.reading()
}

// scan is one pass over a page.
type scan struct {
	known  known
	engine *engine // nil until the page has shown it
	seen   bool    // the page has a series of the engine
	want   wanted
	tally  [quantities]tally
	lora   labels  // of the newest LoRA sample; nil = there was none
	loraAt float64 // value of that sample: when it was written, in Unix seconds
	loaded loadedNames
	ranks  []rank
}

// rank is what one data parallel rank says of a series whose samples are told once for each rank: those of its first
// rank, by pipeline and then by tensor, that is on the page.
type rank struct {
	of     *series
	data   []byte // the data parallel rank, as its label has it
	pp, tp uint64
	tally  tally
}

// mostRanks bounds the data parallel ranks of a page, times the series that they have.
const mostRanks = 4096

// ofRank returns the tally for a sample of the first rank so far; nil = it is of a later one, which says the same
// again, or its rank is no number. Ranks of tensors count on over the data parallel ones, and over several nodes.
func (s *scan) ofRank(of *series, l labels) *tally {
	data, _, _ := l.label("dp_rank")
	pp, isPP := rankIn(l, "pp_rank")
	tp, isTP := rankIn(l, "tp_rank")
	if !isPP || !isTP {
		return nil
	}
	for i := range s.ranks {
		r := &s.ranks[i]
		if r.of != of || !bytes.Equal(r.data, data) {
			continue
		}
		switch first := cmp.Or(cmp.Compare(pp, r.pp), cmp.Compare(tp, r.tp)); {
		case first > 0:
			return nil
		case first < 0:
			r.pp, r.tp, r.tally = pp, tp, tally{}
		}
		return &r.tally
	}
	if len(s.ranks) == mostRanks {
		return nil
	}
	s.ranks = append(s.ranks, rank{of: of, data: data, pp: pp, tp: tp})
	return &s.ranks[len(s.ranks)-1].tally
}

// rankIn returns the rank that a label has; 0 without the label.
func rankIn(l labels, label string) (rank uint64, ok bool) {
	text, _, _ := l.label(label)
	if len(text) == 0 {
		return 0, true
	}
	rank, err := strconv.ParseUint(string(text), 10, 32)
	return rank, err == nil
}

// loadedNames are the adapters and models that samples name one by one, each once.
type loadedNames struct {
	slots, host, pinned []string
	base                [mostBases]labels // of samples with different models
	bases               int
}

// mostBases bounds the base models of a page: engines run one.
const mostBases = 4

// takeBase takes a sample whose model needs no slot.
func (s *scan) takeBase(of labels) {
	name, _, ok := of.label("model_name")
	if !ok || s.loaded.bases == mostBases {
		return
	}
	for _, known := range s.loaded.base[:s.loaded.bases] {
		if before, _, _ := known.label("model_name"); bytes.Equal(before, name) {
			return
		}
	}
	s.loaded.base[s.loaded.bases] = of
	s.loaded.bases++
}

// bases returns the models that need no slot.
func (s *scan) bases() []string {
	names := make([]string, s.loaded.bases)
	for i, of := range s.loaded.base[:s.loaded.bases] {
		names[i] = of.text("model_name")
	}
	return names
}

// add adds the name that a label has to a list.
func (s *scan) add(to *[]string, of labels, label string) {
	if name := of.text(label); name != "" && len(*to) < maxAdapters && !slices.Contains(*to, name) {
		*to = append(*to, name)
	}
}

// takeAdapter takes a sample of an adapter that is loaded.
func (s *scan) takeAdapter(of labels) {
	switch {
	case of.is("level", "cpu"):
		s.add(&s.loaded.host, of, "adapter_name")
	default:
		s.add(&s.loaded.slots, of, "adapter_name")
		if of.is("pinned", "true") || of.is("pinned", "True") || of.is("pinned", "1") {
			s.add(&s.loaded.pinned, of, "adapter_name")
		}
	}
}

func (s *scan) line(line []byte) {
	line = skipBlanks(line)
	if len(line) == 0 || line[0] == '#' {
		return
	}
	name := line
	if line[0] == '{' { // the name is inside, in quotes
		p, ok := parseSample(line)
		if !ok {
			return
		}
		name = p.name
	}
	if s.engine != nil {
		s.match(name, line, s.engine)
	} else {
		for i := range s.known.found {
			s.match(name, line, &s.known.engines[i])
		}
	}
	s.look(name, line, common)
}

func (s *scan) match(name, line []byte, e *engine) {
	if len(name) < len(e.prefix) || string(name[:len(e.prefix)]) != e.prefix || !s.look(name, line, e.series) {
		return
	}
	s.engine, s.seen = e, true
}

// look takes a line if its name is that of one of the series and its quantity is wanted.
func (s *scan) look(name, line []byte, of []series) (found bool) {
	for i := range of {
		if !startsWith(name, of[i].name) {
			continue
		}
		if s.want.quantities&(1<<of[i].tells) != 0 {
			found = s.take(&of[i], line) || found
		}
		found = found || s.want.engine
	}
	return found
}

// startsWith reports whether a line begins with this name, and not with a longer one.
func startsWith(line []byte, name string) bool {
	if len(line) < len(name) || string(line[:len(name)]) != name {
		return false
	}
	if len(line) == len(name) {
		return true
	}
	c := line[len(name)]
	return c == '{' || c == ' ' || c == '\t'
}

// take counts a sample of a series. It returns false if the sample counts as absent.
func (s *scan) take(of *series, line []byte) bool {
	p, ok := parseSample(line)
	if !ok || !of.only.holds(p.labels) || !p.labels.have(of.has) {
		return false
	}
	text := p.value
	if of.from != "" {
		if text, _, ok = p.labels.label(of.from); !ok {
			return false
		}
	}
	value, err := strconv.ParseFloat(string(text), 64)
	if err != nil || math.IsNaN(value) || math.IsInf(value, 0) || value < 0 {
		return false
	}
	switch {
	case of.tells == lora:
		if s.lora == nil || value >= s.loraAt {
			s.lora, s.loraAt = p.labels, value
		}
		return true
	case of.tells == loraLoaded && value > 0:
		s.takeAdapter(p.labels)
	case of.tells == running && s.want.adapters:
		s.takeBase(p.labels)
	}
	t := &s.tally[of.tells]
	if of.only == firstRank {
		t = s.ofRank(of, p.labels)
	}
	if t != nil {
		t.add(value)
	}
	return true
}

func (s *scan) reading() (r messages.Reading) {
	if s.seen {
		r.Engine = s.engine.name
	}
	values := make([]messages.Extracted, 0, 8)
	for _, of := range &numbers {
		value, ok := of.of(s.tally[of.tells])
		if of.tells == kvUsed && !ok {
			value, ok = of.of(s.tally[kvUsedOlder])
		}
		if ok && s.want.numbers&(1<<of.tells) != 0 {
			values = append(values, messages.Extracted{Attribute: of.attribute.Name, Value: value})
		}
	}
	if slots, ok := s.slots(); ok {
		values = append(values, messages.Extracted{Attribute: attributes.MaxLoRAs.Name, Value: slots})
	}
	r.Names = messages.TakeList(s.names())
	r.Numbers = messages.TakeList(values)
	return r
}

// slots returns how many adapters a server can run at once.
func (s *scan) slots() (float64, bool) {
	if n, ok := s.tally[loraSlots].top(); ok {
		return n, true
	}
	if s.lora == nil {
		return 0, false
	}
	n, err := strconv.ParseUint(s.lora.text("max_lora"), 10, 31)
	return float64(n), err == nil
}

// namesSlots reports whether the page names the adapters in slots. A page that counts none has empty lists of them; one
// that counts some must name them, or their slots would pass for empty.
func (s *scan) namesSlots() bool {
	return s.tally[loraLoaded].samples > 0 || s.tally[loraCount].samples > 0 && s.tally[loraCount].sum == 0
}

// names returns the lists of adapters that the page has, and the base models.
func (s *scan) names() (all []messages.ExtractedNames) {
	if s.lora == nil && s.tally[loraLoaded].samples+s.tally[loraCount].samples == 0 {
		return nil // without adapters every model needs no slot
	}
	all = make([]messages.ExtractedNames, 0, len(adapterAttributes))
	list := func(a attributes.Attribute, names []string) {
		all = append(all, messages.ExtractedNames{Attribute: a.Name, Names: messages.TakeList(names)})
	}
	if s.lora != nil {
		active, waited := s.adapters()
		list(attributes.ActiveLoRAs, active)
		list(attributes.WaitingLoRAs, waited)
	}
	if s.namesSlots() {
		list(attributes.ResidentLoRAs, s.loaded.slots)
		list(attributes.HostLoRAs, s.loaded.host)
		list(attributes.PinnedLoRAs, s.loaded.pinned)
	}
	list(attributes.BaseModels, s.bases())
	return all
}

// adapters reads the newest sample of vllm:lora_requests_info. Samples stay on the page for ever, and the value of one
// is the time at which it was last written. An adapter that is in use does not count as waited for, and while no
// request waits none does: vLLM repeats there the ones in use.
func (s *scan) adapters() (active, waited []string) {
	active = adapters(s.lora.text("running_lora_adapters"), nil)
	if s.tally[waiting].sum > 0 || s.tally[waiting].samples == 0 {
		waited = adapters(s.lora.text("waiting_lora_adapters"), active)
	}
	return active, waited
}

// adapters splits a list at its commas and leaves out what is in without. It returns nil if nothing is left.
func adapters(text string, without []string) []string {
	if text == "" {
		return nil
	}
	list := make([]string, 0, min(strings.Count(text, ",")+1, maxAdapters))
	for range maxAdapters {
		name, rest, more := strings.Cut(text, ",")
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(without, name) {
			list = append(list, name)
		}
		if text = rest; !more {
			break
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list
}
