// Package attributes names what plugins may know: attributes of endpoints, who emits and who reads them, headers of
// requests, and the slot in which the values of each stand. A binding is made once for each configuration. The package
// holds no values, and never looks at an endpoint.
package attributes

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/signalbox-epp/signalbox/engine/clip"
)

// Attribute is something that is known of an endpoint.
type Attribute struct {
	Name   string // one that is not built in has any name, also that of one that is
	Type   Type
	Unit   string
	Origin Origin
}

// BuiltIn reports whether the attribute is among those of BuiltIn, and not one of a file with such a name.
func (a Attribute) BuiltIn() bool { return slices.Contains(BuiltIn(), a) }

// Type is the type of an attribute's values.
type Type uint8

const (
	Number Type = iota // NaN = unknown
	Names              // a list of names
)

func (t Type) String() string {
	if t == Names {
		return "names"
	}
	return "number"
}

// Origin says where the values of an attribute come from.
type Origin uint8

const (
	Sampled  Origin = iota // from the newest answer of a model server: they have an age, and can be unknown
	Counted                // from this process: what it sent to the endpoint and has not seen end
	Matched                // from the request's prompt and the prefix index
	Produced               // from a plugin, anew for each request
)

// The attributes that are built in.
var (
	// QueuedRequests counts those in the sample, those that were picked for the endpoint since, and those that wait in
	// the picker for room there.
	QueuedRequests = Attribute{"queued-requests", Number, "requests", Sampled}
	// WaitingRequests counts those in the sample alone: a server is full by its own word, not by what was just picked.
	WaitingRequests = Attribute{"waiting-requests", Number, "requests", Sampled}
	RunningRequests = Attribute{"running-requests", Number, "requests", Sampled}
	// KVCacheUsage is the share in use, 0 to 1.
	KVCacheUsage = Attribute{"kv-cache-usage", Number, "share", Sampled}
	ActiveLoRAs  = Attribute{"active-loras", Names, "adapters", Sampled}
	WaitingLoRAs = Attribute{"waiting-loras", Names, "adapters", Sampled}
	MaxLoRAs     = Attribute{"max-loras", Number, "adapters", Sampled}
	// ResidentLoRAs are those in a slot, in use or not. Servers that do not say so have none, not even an empty list.
	ResidentLoRAs = Attribute{"resident-loras", Names, "adapters", Sampled}
	// HostLoRAs are those in the memory of the host, from where a slot is filled soon.
	HostLoRAs = Attribute{"host-loras", Names, "adapters", Sampled}
	// PinnedLoRAs are those in a slot that make way for no other.
	PinnedLoRAs = Attribute{"pinned-loras", Names, "adapters", Sampled}
	// BaseModels are those that a server's own load is labelled with: they need no slot.
	BaseModels = Attribute{"base-models", Names, "models", Sampled}
	// KVBlockTokens is how many tokens a block of the KV cache holds.
	KVBlockTokens = Attribute{"kv-block-tokens", Number, "tokens", Sampled}
	KVBlocks      = Attribute{"kv-blocks", Number, "blocks", Sampled}
	// Asleep is 1 while an engine of the server sleeps, and 0 while none does.
	Asleep = Attribute{"asleep", Number, "0 or 1", Sampled}
	// StartTime is when the server's process started.
	StartTime = Attribute{"start-time", Number, "unix seconds", Sampled}
	// Models lists base models and adapters, from the model list.
	Models = Attribute{"models", Names, "models", Sampled}

	// InflightRequests counts those that were sent to the endpoint, and those that wait in the picker for room there.
	InflightRequests = Attribute{"inflight-requests", Number, "requests", Counted}
	// InflightTokens are those of the prompts, estimated, and of the answers if an inflight-load-producer counts them.
	InflightTokens = Attribute{"inflight-tokens", Number, "tokens", Counted}
	// SentRequests and SentTokens are the same without what waits in the picker. Detectors read them in place of those.
	SentRequests = Attribute{"sent-requests", Number, "requests", Counted}
	SentTokens   = Attribute{"sent-tokens", Number, "tokens", Counted}
	// WindowRequests is how many requests in flight an endpoint takes before more only wait there, as was learned.
	WindowRequests = Attribute{"window-requests", Number, "requests", Counted}
	// WindowTokens is the same of the tokens of prompts.
	WindowTokens = Attribute{"window-tokens", Number, "tokens", Counted}
	// PromptWait is how long the endpoint is likely to take before it computes the prompt of a request that is sent
	// now, or that waits behind those that wait for room there.
	PromptWait = Attribute{"prompt-wait", Number, "seconds", Counted}
	// PromptRate is how many further tokens of prompts delay a first token by a second, as first tokens have shown.
	PromptRate = Attribute{"prompt-rate", Number, "tokens per second", Counted}
	// RequestRate is how many requests were sent to the endpoint in a second, a mean over 20 s.
	RequestRate = Attribute{"request-rate", Number, "requests per second", Counted}

	// PrefixBlocks is how many lead blocks of the request's prompt the endpoint holds.
	PrefixBlocks = Attribute{"prefix-blocks", Number, "blocks", Matched}
)

// builtIn reports whether one that is built in has a name.
func builtIn(name string) bool {
	return slices.ContainsFunc(BuiltIn(), func(a Attribute) bool { return a.Name == name })
}

// BuiltIn returns the attributes that are built in.
func BuiltIn() []Attribute {
	return []Attribute{
		QueuedRequests, WaitingRequests, RunningRequests, KVCacheUsage, ActiveLoRAs, WaitingLoRAs, MaxLoRAs,
		ResidentLoRAs, HostLoRAs, PinnedLoRAs, BaseModels, KVBlockTokens, KVBlocks, Asleep, StartTime,
		Models,
		InflightRequests, InflightTokens, SentRequests, SentTokens, WindowRequests, WindowTokens,
		PromptWait, PromptRate, RequestRate, PrefixBlocks,
	}
}

// What plugins of engine/points emit and plugins of other packages read, if a file has both.
var (
	// FirstTokenFloor is how long an endpoint takes to a first token when nothing waits.
	FirstTokenFloor = Attribute{"llm-d.ai/ttft-floor-seconds", Number, "seconds", Produced}
	// FirstTokenLow and FirstTokenTypical are percentiles of how long it took lately.
	FirstTokenLow     = Attribute{"llm-d.ai/ttft-low-seconds", Number, "seconds", Produced}
	FirstTokenTypical = Attribute{"llm-d.ai/ttft-typical-seconds", Number, "seconds", Produced}
	// FirstTokenLowLoad and FirstTokenTypicalLoad are the requests in flight when it took about so long.
	FirstTokenLowLoad     = Attribute{"llm-d.ai/ttft-low-inflight-requests", Number, "requests", Produced}
	FirstTokenTypicalLoad = Attribute{"llm-d.ai/ttft-typical-inflight-requests", Number, "requests", Produced}
	// MediaCached is the share of the request's images, sounds and files that an endpoint was sent before.
	MediaCached = Attribute{"llm-d.ai/mm-embeddings-cached-ratio", Number, "share", Produced}
)

// Shared returns the attributes that plugins of engine/points emit and plugins of other packages read.
func Shared() []Attribute {
	return []Attribute{
		FirstTokenFloor, FirstTokenLow, FirstTokenTypical, FirstTokenLowLoad, FirstTokenTypicalLoad, MediaCached,
	}
}

// IsShare reports whether the attribute of a name is a share, of 0 to 1.
func IsShare(name string) bool {
	return slices.ContainsFunc(append(BuiltIn(), Shared()...), func(a Attribute) bool {
		return a.Name == name && a.Unit == "share"
	})
}

// ProducedAs returns the attribute of a name that a plugin emits.
func ProducedAs(name string) Attribute {
	shared := Shared()
	if i := slices.IndexFunc(shared, func(a Attribute) bool { return a.Name == name }); i >= 0 {
		return shared[i]
	}
	return Attribute{Name: name, Origin: Produced}
}

// CheckName returns what is wrong with the name of an attribute that is not built in.
func CheckName(name string) error {
	if name == "" || len(name) > maxName || strings.ContainsFunc(name, unicode.IsControl) {
		return fmt.Errorf("got %q, want a name of 1 to %d bytes without control characters, such as example.com/watts",
			clip.Value(name), maxName)
	}
	return nil
}

const maxName = 253 // bytes

// maxHeaders is how many headers of a request plugins may read.
const maxHeaders = 32

const headerRunes = "abcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~"

// headerName reports whether HTTP can have a header, or Envoy a pseudo header, of this name in lower case.
func headerName(name string) bool {
	name = strings.TrimPrefix(name, ":")
	return name != "" && len(name) <= maxName && !strings.ContainsFunc(name,
		func(r rune) bool { return !strings.ContainsRune(headerRunes, r) })
}

// notForPlugins are headers that plugins cannot set, because others decide them.
var notForPlugins = []string{
	"connection", "content-length", "host", "transfer-encoding", "upgrade", "x-gateway-destination-endpoint",
	"x-request-id",
}

// SettableHeader reports whether a plugin may set a header of this name, in lower case, to this value.
func SettableHeader(name, value string) bool {
	return headerName(name) && name[0] != ':' && !slices.Contains(notForPlugins, name) &&
		!strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

// Slot is the place of an attribute among those of its type.
type Slot struct {
	Type  Type
	Index int
}

// NumberSlot is the slot of a number that a plugin reads. The zero NumberSlot is of none.
type NumberSlot struct{ after int }

// Index returns the slot's index among the numbers; -1 = none.
func (s NumberSlot) Index() int { return s.after - 1 }

// NamesSlot is the slot of names that a plugin reads. The zero NamesSlot is of none.
type NamesSlot struct{ after int }

// Index returns the slot's index among the names; -1 = none.
func (s NamesSlot) Index() int { return s.after - 1 }

// HeaderSlot is the slot of a header of the request that a plugin reads. The zero HeaderSlot is of none.
type HeaderSlot struct {
	after int
	name  string
}

// Index returns the slot's index among the headers; -1 = none.
func (s HeaderSlot) Index() int { return s.after - 1 }

// Name returns the name of the header, in lower case, or of the cookie as Layout.Headers has it; "" = none.
func (s HeaderSlot) Name() string { return s.name }

// Extractor is a plugin that takes numbers from what a source answers: a metrics page, or a document. A source of
// dataLayer.sources names it among its extractors.
type Extractor interface {
	// Emits returns the names of the attributes. It is called after the parameters were decoded,
	// and returns the same each time.
	Emits() []string
	// Extract sets values[i] to that of attribute i of Emits, for the endpoint that answered with page. All values are
	// NaN at first, which means unknown. It is called at the same time for several endpoints, and must not keep page.
	// If it returns an error, the answer counts as failed.
	Extract(page []byte, values []float64) error
}

// Binding collects who emits and who reads attributes, while a configuration is built. The zero Binding is empty.
type Binding struct {
	emitters []emitter
	asked    [2][]asked // by type
	headers  []asked    // of requests
	private  int        // slots that one plugin alone uses
}

type emitter struct {
	producer string
	source   *Source // nil = none is named
	Attribute
	shared bool // all that emit it emit the same values
}

// Source is what answers with the values of sampled attributes. Those of one source have one age.
type Source struct {
	Name   string            // "" = the metrics page that the built-in attributes come from
	Select map[string]string // labels that an endpoint must have to be asked; of others the attributes are unknown
}

// Selects reports whether an endpoint with these labels is asked. A nil Source asks all.
func (s *Source) Selects(labels map[string]string) bool {
	if s == nil {
		return true
	}
	for key, want := range s.Select {
		if got, ok := labels[key]; !ok || got != want {
			return false
		}
	}
	return true
}

// asked is a slot, and who asked for it.
type asked struct {
	name, producer string // producer "" = the only one
	reader         string // the first one
	own            bool   // an attribute of the file goes before one of the name that is built in
}

// Emit declares that a producer, the name of a plugin instance, emits attributes.
func (b *Binding) Emit(producer string, all ...Attribute) { b.EmitFrom(nil, producer, all...) }

// EmitFrom is as Emit, of attributes that come from a source.
func (b *Binding) EmitFrom(source *Source, producer string, all ...Attribute) {
	for _, a := range all {
		b.emitters = append(b.emitters, emitter{producer: producer, source: source, Attribute: a})
	}
}

// EmitShared is as Emit, of attributes that have the same values whichever of their producers emits them. So a reader
// that names none may read those of any.
func (b *Binding) EmitShared(producer string, all ...Attribute) {
	for _, a := range all {
		b.emitters = append(b.emitters, emitter{producer: producer, Attribute: a, shared: true})
	}
}

// Reader returns the declaration of a reader, the name of a plugin instance.
func (b *Binding) Reader(name string) *Reader { return &Reader{binding: b, name: name} }

// DetectorReader is Reader for a saturation detector: it reads of the load only what was sent, for requests that wait
// take no room.
func (b *Binding) DetectorReader(name string) *Reader {
	return &Reader{binding: b, name: name, sent: true}
}

// PolicyReader is Reader for a policy of flow control. It is asked about no endpoint, so of what can be declared it may
// read headers alone, and these only if it is asked about requests that wait.
func (b *Binding) PolicyReader(name string, ofRequests bool) *Reader {
	return &Reader{binding: b, name: name, policy: true, headless: !ofRequests}
}

// Reader is where a plugin declares what it reads.
type Reader struct {
	binding *Binding
	name    string
	slots   []Slot
	headers []string
	sent    bool     // of the load it reads what was sent
	barred  []string // what it has declared in vain

	policy, headless bool // it may read headers alone, or not even these
}

// Barred returns what the plugin has declared that it may not read.
func (r *Reader) Barred() []string { return r.barred }

// Headers returns the names of the headers that the plugin has declared so far, as Layout.Headers has them.
func (r *Reader) Headers() []string { return r.headers }

// bars reports whether the plugin may not read anything of a kind, and notes what it wants to.
func (r *Reader) bars(kind bool, what string) bool {
	if kind {
		r.barred = append(r.barred, what)
	}
	return kind
}

// Name returns the name of the plugin instance that declares.
func (r *Reader) Name() string { return r.name }

// Number declares that the plugin reads a number. producer is the instance that emits it; "" = the only one that does.
func (r *Reader) Number(name, producer string) NumberSlot {
	switch {
	case r.bars(r.policy, name):
		return NumberSlot{}
	case !r.sent:
	case name == InflightRequests.Name:
		name = SentRequests.Name
	case name == InflightTokens.Name:
		name = SentTokens.Name
	}
	return NumberSlot{r.ask(Number, name, producer, false) + 1}
}

// Named is Number for a name that stands in a file: if the file has an attribute of its own with the name of one that
// is built in, its own is read, and by Number the other.
func (r *Reader) Named(name, producer string) NumberSlot {
	if r.bars(r.policy, name) {
		return NumberSlot{}
	}
	return NumberSlot{r.ask(Number, name, producer, true) + 1}
}

// Names declares that the plugin reads names. producer is the instance that emits them; "" = the only one that does.
func (r *Reader) Names(name, producer string) NamesSlot {
	if r.bars(r.policy, name) {
		return NamesSlot{}
	}
	return NamesSlot{r.ask(Names, name, producer, false) + 1}
}

// Header declares that the plugin reads a header of requests, by its name in any case.
func (r *Reader) Header(name string) HeaderSlot {
	return r.header(strings.ToLower(name))
}

func (r *Reader) header(name string) HeaderSlot {
	if r.bars(r.headless, name) {
		return HeaderSlot{}
	}
	list := &r.binding.headers
	at := slices.IndexFunc(*list, func(a asked) bool { return a.name == name })
	if at < 0 {
		at = len(*list)
		*list = append(*list, asked{name: name, reader: r.name})
	}
	r.headers = append(r.headers, name)
	return HeaderSlot{at + 1, name}
}

// cookie begins the name of a header slot that has one cookie, for no header's name has an equals sign.
const cookie = "cookie="

// Cookie declares that the plugin reads a cookie of requests, by its name.
func (r *Reader) Cookie(name string) HeaderSlot { return r.header(cookie + name) }

// CookieName reports whether HTTP can have a cookie of this name.
func CookieName(name string) bool { return headerName(strings.ToLower(name)) && name[0] != ':' }

// Cookie returns the name of the cookie that stands in place of a header in Layout.Headers; false = it is a header.
func Cookie(header string) (name string, ok bool) { return strings.CutPrefix(header, cookie) }

// Private declares a slot for a value of each request that only the plugin uses. It returns the slot's index.
func (r *Reader) Private() int {
	if r.bars(r.policy, "a private slot") {
		return -1
	}
	r.binding.private++
	return r.binding.private - 1
}

func (r *Reader) ask(typ Type, name, producer string, own bool) int {
	list := &r.binding.asked[typ]
	own = own && builtIn(name)
	at := slices.IndexFunc(*list, func(a asked) bool {
		return a.name == name && a.producer == producer && a.own == own
	})
	if at < 0 {
		at = len(*list)
		*list = append(*list, asked{name, producer, r.name, own})
	}
	r.slots = append(r.slots, Slot{typ, at})
	return at
}

// Slots returns what the plugin has declared so far.
func (r *Reader) Slots() []Slot { return r.slots }
