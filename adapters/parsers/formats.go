package parsers

import (
	"strings"

	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/messages"
)

// Formats are sets of the formats of requests that a parser reads, each that of one API.
type Formats uint8

const (
	// OpenAI is the API of OpenAI: chat completions, completions, responses, embeddings, images, speech and
	// conversations, and the requests that render a prompt.
	OpenAI Formats = 1 << iota
	// Anthropic is the API of Anthropic: messages, and the counting of their tokens.
	Anthropic
	// VLLM is what vLLM has beside: /inference/v1/generate.
	VLLM
	// SGLang is what SGLang has beside: /generate.
	SGLang
	// VLLMGRPC is vLLM's own service for gRPC: its methods Generate and Embed.
	VLLMGRPC
	// VertexAI is the service for predictions of Vertex, for gRPC, whose calls wrap JSON of the API of OpenAI.
	VertexAI
)

// Every is the set of all formats.
const Every = OpenAI | Anthropic | VLLM | SGLang | VLLMGRPC | VertexAI

type format uint8

const (
	unknownFormat      format = iota
	namedFormat               // of which only the model is read: the request has no prompt
	chatFormat                // messages, as chat completions have them
	completionFormat          // prompt
	responsesFormat           // input and instructions
	embeddingFormat           // input
	imageFormat               // prompt, which is computed and not kept
	conversationFormat        // items
	messagesFormat            // messages and system, as Anthropic has them
	tokensFormat              // token_ids, of vLLM
	generateFormat            // input_ids or text, of SGLang
	formFormat                // multipart/form-data
	chatRender                // chat completions, of which only the prompt is computed
	completionRender          // completions, likewise
	engineFormat              // GenerateRequest, of vLLM for gRPC
	engineEmbedFormat         // EmbedRequest, likewise
	vertexChatFormat          // chat completions in a call to Vertex
	vertexRawFormat           // responses in a call to Vertex
)

// isGRPC reports whether a body of this format is one of gRPC.
func (f format) isGRPC() bool { return f >= engineFormat }

// wrapped returns the format of what a call to Vertex wraps, or the one whose prompt is rendered; of others the same.
func (f format) wrapped() format {
	switch f {
	case vertexChatFormat, chatRender:
		return chatFormat
	case completionRender:
		return completionFormat
	case vertexRawFormat:
		return responsesFormat
	default:
		return f
	}
}

// suffixes says by how a path ends which format its body has. Of several the longest counts.
var suffixes = []struct {
	end string
	of  Formats
	is  format
}{
	{"chat/completions", OpenAI, chatFormat},
	{"completions", OpenAI, completionFormat},
	{"chat/completions/render", OpenAI, chatRender},
	{"completions/render", OpenAI, completionRender},
	{"responses", OpenAI, responsesFormat},
	{"embeddings", OpenAI, embeddingFormat},
	{"images/generations", OpenAI, imageFormat},
	{"audio/speech", OpenAI, namedFormat},
	{"conversations", OpenAI, conversationFormat},
	{"messages", Anthropic, messagesFormat},
	{"messages/count_tokens", Anthropic, namedFormat},
	{"messages/render", Anthropic, namedFormat},
	{"inference/v1/generate", VLLM, tokensFormat},
	{"generate", SGLang, generateFormat},
	{"vllm.grpc.engine.VllmEngine/Generate", VLLMGRPC, engineFormat},
	{"vllm.grpc.engine.VllmEngine/Embed", VLLMGRPC, engineEmbedFormat},
	{"PredictionService/ChatCompletions", VertexAI, vertexChatFormat},
	{"PredictionService/RawPredict", VertexAI, vertexRawFormat},
	{"PredictionService/StreamRawPredict", VertexAI, vertexRawFormat},
}

// isBoundary reports whether a suffix may begin behind a byte of a path: gRPC has dots in the names of services.
func isBoundary(c byte) bool { return c == '/' || c == '.' }

// formatOf returns the format of a body that is sent to a path.
func (fs Formats) formatOf(path string) format {
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		path = path[:i]
	}
	path = strings.TrimSuffix(path, "/")
	found, longest := unknownFormat, 0
	for i := range suffixes {
		s := &suffixes[i]
		rest, ends := strings.CutSuffix(path, s.end)
		if ends && fs&s.of != 0 && len(s.end) > longest && (rest == "" || isBoundary(rest[len(rest)-1])) {
			found, longest = s.is, len(s.end)
		}
	}
	return found
}

// api returns what answers to a format are made of; UnknownAPI = they have no output tokens.
func (f format) api() messages.API {
	switch f {
	case chatFormat:
		return messages.ChatAPI
	case completionFormat:
		return messages.CompletionAPI
	case responsesFormat:
		return messages.ResponsesAPI
	case messagesFormat:
		return messages.MessagesAPI
	case tokensFormat:
		return messages.TokensAPI
	case generateFormat:
		return messages.GenerateAPI
	case engineFormat:
		return messages.EngineAPI
	case engineEmbedFormat:
		return messages.EngineEmbedAPI
	case vertexChatFormat:
		return messages.VertexChatAPI
	case vertexRawFormat:
		return messages.VertexResponsesAPI
	case unknownFormat, namedFormat, embeddingFormat, imageFormat, conversationFormat, formFormat, chatRender,
		completionRender:
	}
	return messages.UnknownAPI
}

// hasPriority reports whether model servers schedule requests of this format by a priority in their body.
func (f format) hasPriority() bool {
	switch f {
	case chatFormat, completionFormat, responsesFormat, embeddingFormat, imageFormat, messagesFormat, tokensFormat:
		return true
	case unknownFormat, namedFormat, conversationFormat, generateFormat, formFormat, chatRender, completionRender,
		engineFormat, engineEmbedFormat, vertexChatFormat, vertexRawFormat:
	}
	return false
}

// poolingEnds are how the paths end of requests that vLLM schedules by a priority though they generate nothing.
var poolingEnds = [...]string{"/score", "/rerank", "/classify", "/pooling"}

// pools reports whether a path is one of those.
func pools(path string) bool {
	path = strings.TrimSuffix(path, "/")
	for _, end := range &poolingEnds {
		if strings.HasSuffix(path, end) {
			return true
		}
	}
	return false
}

// limitedByTokens reports whether max_tokens limits the output.
func (f format) limitedByTokens() bool {
	return f == chatFormat || f == completionFormat || f == messagesFormat
}

// tells reports whether streams have token usage without being asked for it.
func (f format) tells() bool {
	return f == responsesFormat || f == messagesFormat || f == generateFormat || f == engineFormat
}

// part says what a member of the top object is to the prompt.
type part uint8

const (
	noPart   part = iota
	texts         // a text, or a list of texts and media
	written       // what templates print as JSON; it counts as prompt with its keys
	turns         // messages; new with each request of a conversation
	sequence      // a text, texts, tokens, or lists of tokens
)

// partOf returns what a member is to the prompt of a format, and of which part of it.
func (f format) partOf(key []byte) (part, blockindex.Part) {
	switch f {
	case chatFormat:
		return chatPart(string(key))
	case responsesFormat:
		return responsesPart(string(key))
	case messagesFormat:
		switch string(key) {
		case "messages":
			return turns, blockindex.Turns
		case "tools":
			return written, blockindex.Tools
		case "system":
			return texts, blockindex.System
		}
	case conversationFormat:
		if string(key) == "items" {
			return turns, blockindex.Turns
		}
	case completionFormat, imageFormat, embeddingFormat, tokensFormat, generateFormat:
		if f.isSequence(string(key)) {
			return sequence, blockindex.Turns
		}
	case unknownFormat, namedFormat, formFormat, chatRender, completionRender, engineFormat, engineEmbedFormat,
		vertexChatFormat, vertexRawFormat:
	}
	return noPart, 0
}

func chatPart(key string) (part, blockindex.Part) {
	switch key {
	case "messages":
		return turns, blockindex.Turns
	case "input_ids": // SGLang takes these tokens, and not the messages
		return sequence, blockindex.Turns
	case "tools":
		return written, blockindex.Tools
	case "documents":
		return written, blockindex.Documents
	}
	return noPart, 0
}

func responsesPart(key string) (part, blockindex.Part) {
	switch key {
	case "input":
		return turns, blockindex.Turns
	case "tools":
		return written, blockindex.Tools
	case "instructions":
		return texts, blockindex.System
	case "previous_response_id", "conversation", "previous_response", "previous_input_messages":
		return written, blockindex.History
	}
	return noPart, 0
}

func (f format) isSequence(key string) bool {
	switch f {
	case completionFormat, imageFormat:
		return key == "prompt"
	case embeddingFormat:
		return key == "input"
	case tokensFormat:
		return key == "token_ids"
	case generateFormat:
		return key == "input_ids" || key == "text"
	default:
		return false
	}
}

// formatSet is a set of formats.
type formatSet uint32

const (
	chats       formatSet = 1 << chatFormat
	completions formatSet = 1 << completionFormat
	responses   formatSet = 1 << responsesFormat
	anthropic   formatSet = 1 << messagesFormat
	tokenLists  formatSet = 1 << tokensFormat
	generates   formatSet = 1 << generateFormat
	ofSGLang              = chats | completions | generates
)

const templateKwargs = "chat_template_kwargs"

// keys are the members of the top object that are no text of the prompt, but decide what an engine makes of it, or in
// which part of its cache it looks: prompts that differ in one have no block in common.
var keys = [...]struct {
	name string
	in   formatSet
	only string // the member of an object that does; "" = any
}{
	// what templates read
	{"chat_template", chats, ""}, {templateKwargs, chats | responses | anthropic, ""}, {"reasoning_effort", chats, ""},
	{"reasoning", responses, "effort"}, {"output_config", anthropic, "effort"}, {"thinking", anthropic, "type"},
	{"prompt", responses, ""},
	// what decides where the tokens begin
	{"add_special_tokens", chats | completions, ""}, {"truncate_prompt_tokens", chats | completions, ""},
	{"truncation_side", chats | completions, ""},
	// where in the cache
	{"lora_path", ofSGLang, ""}, {"extra_key", ofSGLang | responses, ""}, {"session_params", ofSGLang, ""},
	{"data_parallel_rank", ofSGLang, ""}, {"routed_dp_rank", ofSGLang, ""},
	// media, and how they are read
	{"mm_processor_kwargs", chats | responses, ""}, {"media_io_kwargs", chats | responses, ""},
	{"features", tokenLists, "mm_hashes"}, {"content_parts", tokenLists, ""}, {"prompt_embeds", completions, ""},
	{"input_embeds", generates, ""}, {"image_data", generates, ""}, {"video_data", generates, ""},
	{"audio_data", generates, ""}, {"mm_hashes", generates, ""}, {"images_config", chats | generates, ""},
	{"max_dynamic_patch", chats | generates, ""}, {"min_dynamic_patch", chats | generates, ""},
	{"use_audio_in_video", chats | generates, ""},
}

var keysByName = func() map[string]int {
	byName := make(map[string]int, len(keys))
	for i, k := range keys {
		byName[k.name] = i
	}
	return byName
}()

// keyOf returns which key a member is in a format.
func (f format) keyOf(name []byte) (int, bool) {
	k, ok := keysByName[string(name)]
	return k, ok && keys[k].in&(1<<f) != 0
}
