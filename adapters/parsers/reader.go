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

	promptBytes int // bytes of text in the prompt
	media       int // images, sounds and files in the messages
	hints       messages.OutputHints
	kwargs      bool // the object that is read next is chat_template_kwargs
	wantsItems  bool
	items       []messages.Medium   // the media, each once, at most maxItems; only with wantsItems
	kind        messages.MediumKind // of a medium that is read next, as what stands around it tells
	tokens      int                 // tokens of the prompt's token arrays
	fed         bool                // the body has messages, or a prompt
	countKeys   bool                // keys count as prompt text too
	chunk       [256]byte
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
	case "extra_key":
		if r.format != generateFormat {
			return r.skip()
		}
		r.salt, ok = r.text()
	case "max_tokens", "max_completion_tokens", "max_output_tokens":
		ok = r.limitMember(key)
	case "sampling_params":
		ok = r.samplingParams()
	case "tools", "functions":
		given := r.isGiven()
		r.form.structured, r.hints.Tools = given || r.form.structured, given || r.hints.Tools
		ok = r.promptMember(key)
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
	switch p := r.format.partOf(key); p {
	case noPart:
		return r.formMember(key)
	case sequence:
		r.promptBegins()
		r.form.prompts = 0
		return r.prompt()
	default:
		return r.chatMember(key, p)
	}
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

// chatMember reads a member of which a chat template makes the prompt. They are hashed in the order of the body, which
// for one client is always the same, though templates put tools first.
func (r *reader) chatMember(key []byte, is part) bool {
	if is == turns {
		if c := r.peek(); c != '[' && (c != '"' || r.format != responsesFormat) {
			return r.skip()
		}
		r.promptBegins()
	}
	r.countKeys = is != turns
	before := r.promptBytes
	r.kwargs = string(key) == "chat_template_kwargs"
	r.mark(markKey, key)
	if !r.feed(false) {
		return false
	}
	if is == shape {
		r.promptBytes = before
	}
	return true
}

// promptBegins makes room for the hashes. The second time in one body, what was hashed so far is void.
func (r *reader) promptBegins() {
	if r.fed {
		r.hasher.Reset()
		r.promptBytes, r.tokens, r.media, r.items = 0, 0, 0, nil
	}
	r.fed = true
	r.hasher.Expect(len(r.body))
}
