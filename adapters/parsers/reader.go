package parsers

import (
	"github.com/signalbox-epp/signalbox/adapters/parsers/grpcbody"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/messages"
)

// reader takes the facts out of one request body while the scanner walks it.
type reader struct {
	scanner
	format format
	hasher blockindex.Hasher

	model, salt   text
	stream, usage bool
	form          answerForm
	limit         int // max_tokens, or what another API calls so
	newLimit      int // max_completion_tokens, of chat only; it wins

	promptBytes int                   // bytes of text in the prompt
	bytesOf     [blockindex.Parts]int // those of each part
	keySums     [len(keys)]uint64     // what each key says; 0 = nothing
	media       int                   // images, sounds and files in the messages
	at          place                 // of what is read, in the messages
	hints       messages.OutputHints
	wantsItems  bool
	items       []messages.Medium   // the media, each once, at most maxItems; only with wantsItems
	kind        messages.MediumKind // of a medium that is read next, as what stands around it tells
	tokens      int                 // tokens of the prompt's token arrays
	tokenized   bool                // input_ids are the prompt, whatever text or messages are there beside
	// what is read is JSON in the prompt: its keys count as text, and nothing is left out
	asWritten bool
	isSystem  bool // it is the system prompt of Anthropic's API
	role      text // of the message that is read next, if it does not begin with it
	chunk     [256]byte
}

// request reads the whole body.
func (r *reader) request() bool {
	if r.peek() != '{' {
		return r.fail(wantObject)
	}
	for more := r.open('}'); more; more = r.next('}') {
		key, ok := r.key()
		if !ok || !r.member(key) {
			return false
		}
	}
	if r.want != "" {
		return false
	}
	r.peek()
	return r.pos == len(r.body) || r.fail("nothing behind the object")
}

// member reads the value of a key of the top object.
func (r *reader) member(key []byte) (ok bool) {
	switch string(key) {
	case "model":
		r.model, ok = r.text()
	case "cache_salt":
		r.salt, ok = r.text()
	case "stream":
		r.stream, ok = r.isTrue()
	case "stream_options":
		ok = r.streamOptions()
	case "max_tokens", "max_completion_tokens", "max_output_tokens":
		ok = r.limitMember(key)
	case "sampling_params":
		ok = r.samplingParams()
	case "tools", "functions":
		given := r.isGiven()
		r.form.structured, r.hints.Tools = given || r.form.structured, given || r.hints.Tools
		ok = r.promptMember(key) // functions are no part of it: engines leave them out
	default:
		ok = r.promptMember(key)
	}
	return ok
}

// limitMember reads a limit of output tokens, if the format has it by this name.
func (r *reader) limitMember(key []byte) bool {
	first, last := key[len("max_")], len(key)
	limit, ok := r.count() // which may overwrite key
	switch {
	case last == len("max_tokens") && r.format.limitedByTokens(), first == 'o' && r.format == responsesFormat:
		r.limit = limit
	case first == 'c' && r.format == chatFormat:
		r.newLimit = limit
	}
	return ok
}

// samplingParams reads the limit of output tokens of requests that vLLM and SGLang have beside those of other APIs.
func (r *reader) samplingParams() bool {
	wanted := ""
	switch r.format {
	case tokensFormat:
		wanted = "max_tokens"
	case generateFormat:
		wanted = "max_new_tokens"
	}
	if wanted == "" || r.peek() != '{' {
		return r.skip()
	}
	for more := r.open('}'); more; more = r.next('}') {
		key, ok := r.key()
		if !ok {
			return false
		}
		if string(key) == wanted {
			r.limit, ok = r.count()
		} else {
			ok = r.skip()
		}
		if !ok {
			return false
		}
	}
	return r.want == ""
}

// engineCall reads a message of vLLM's own service: its prompt is that of a completion, and it names no model.
func (r *reader) engineCall(message []byte) error {
	if r.format == engineEmbedFormat {
		tokenized, err := grpcbody.ReadEmbed(message)
		if err != nil {
			return err
		}
		return grpcbody.Tokens(tokenized, r.feedToken)
	}
	call, err := grpcbody.ReadGenerate(message)
	if err != nil {
		return err
	}
	r.stream, r.limit = call.Stream, call.MaxTokens
	r.form.choices, r.form.structured, r.form.promptLogProbs = call.Choices, call.Constrained, call.PromptLogProbs
	r.form.logProbs, r.form.top = call.LogProbs >= 0, max(call.LogProbs, 0)
	r.hasher.Expect(len(message))
	r.feedText(call.Text, false)
	return grpcbody.Tokens(call.Tokenized, r.feedToken)
}

// promptMember reads a member that is of the prompt, or decides the form of the answer. It skips any other member.
func (r *reader) promptMember(key []byte) bool {
	is, of := r.format.partOf(key)
	switch is {
	case noPart:
		if k, ok := r.format.keyOf(key); ok {
			return r.keyMember(k, key)
		}
		return r.formMember(key)
	case turns:
		if c := r.peek(); c != '[' && (c != '"' || r.format != responsesFormat) || r.tokenized {
			return r.skip()
		}
	case sequence:
		ids := string(key) == "input_ids"
		if r.peek() == 'n' || ids && !r.isGiven() || r.tokenized && !ids {
			return r.skip()
		}
		r.tokenized = ids
	case texts, written:
	}
	before := r.partBegins(of)
	var ok bool
	switch {
	case is == sequence:
		r.form.prompts = 0
		ok = r.prompt()
	case !r.isGiven():
		ok = r.skip()
	case is == turns:
		ok = r.turns()
	case is == texts:
		r.isSystem = r.format == messagesFormat
		ok = r.feedTexts()
		r.isSystem = false
	default:
		ok = r.written(of, key)
	}
	r.bytesOf[of] = r.promptBytes - before
	return ok
}

// partBegins makes room for the hashes of a part. If the part was there before, what was read of it is void. It returns
// the bytes of the prompt's other parts.
func (r *reader) partBegins(of blockindex.Part) int {
	r.promptBytes -= r.bytesOf[of]
	if of == blockindex.Turns {
		r.tokens, r.media, r.items = 0, 0, nil
	}
	r.asWritten = false
	r.hasher.Begin(of)
	r.hasher.Expect(len(r.body))
	return r.promptBytes
}

// text reads a value that should be a string; another one is skipped and gives none.
func (r *reader) text() (text, bool) {
	if r.peek() != '"' {
		return text{}, r.skip()
	}
	raw, escaped, ok := r.str()
	return text{raw: raw, escaped: escaped}, ok
}

// isTrue reads a value that should be a bool; another one is skipped and is not true.
func (r *reader) isTrue() (bool, bool) {
	if r.peek() != 't' {
		return false, r.skip()
	}
	_, ok := r.word("true")
	return ok, ok
}

// count reads a value that should be a number of tokens; another one is skipped and counts 0.
func (r *reader) count() (int, bool) {
	if c := r.peek(); c != '-' && (c < '0' || c > '9') {
		return 0, r.skip()
	}
	n, ok := r.number()
	return count(n), ok
}

func (r *reader) streamOptions() (ok bool) {
	r.usage, r.form.usageInEach = false, false
	if r.peek() != '{' {
		return r.skip()
	}
	for more := r.open('}'); more; more = r.next('}') {
		key, ok := r.key()
		if !ok {
			return false
		}
		switch string(key) {
		case "include_usage":
			r.usage, ok = r.isTrue()
		case "continuous_usage_stats":
			r.form.usageInEach, ok = r.isTrue()
		default:
			ok = r.skip()
		}
		if !ok {
			return false
		}
	}
	return r.want == ""
}

// keyMember reads the value of a key. Of an object the members may come in any order.
func (r *reader) keyMember(k int, name []byte) bool {
	r.keySums[k] = 0
	if !r.isGiven() {
		return r.skip()
	}
	before, sum := r.promptBytes, uint64(0)
	var ok bool
	r.asWritten = true
	r.hasher.Expect(len(r.body))
	if r.peek() != '{' {
		sum, ok = r.keyed(name)
	} else {
		for more := r.open('}'); more; more = r.next('}') {
			member, is := r.key()
			if !is {
				return false
			}
			if keys[k].name == templateKwargs {
				r.hint(member)
			}
			of := uint64(0)
			if only := keys[k].only; only == "" || only == string(member) {
				of, is = r.keyed(member)
			} else {
				is = r.skip()
			}
			if !is {
				return false
			}
			sum += of
		}
		ok = r.want == ""
	}
	r.keySums[k], r.promptBytes = sum, before
	return ok
}

// keyed returns the hash of the value of a key, or of a member of one; 0 = it says nothing.
func (r *reader) keyed(name []byte) (uint64, bool) {
	if !r.isGiven() {
		return 0, r.skip()
	}
	r.hasher.BeginKey()
	r.mark(markKey, name)
	if !r.feed() {
		return 0, false
	}
	return r.hasher.EndKey(), true
}

// apart returns what keeps the prompt apart from others; 0 = no key says anything.
func (r *reader) apart() (all uint64) {
	const odd = 0x9E3779B97F4A7C15
	for k, sum := range r.keySums {
		if sum != 0 {
			all += (sum ^ uint64(k)) * odd // two keys with the same value are not one
		}
	}
	return all
}
