package parsers

import (
	"strings"

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
	unknownFormat     format = iota
	namedFormat              // of which only the model is read: the request computes no prompt that a cache could hold
	chatFormat               // messages, as chat completions have them
	completionFormat         // prompt
	responsesFormat          // input and instructions
	embeddingFormat          // input, which is computed and not kept
	imageFormat              // prompt, likewise
	messagesFormat           // messages and system, as Anthropic has them
	tokensFormat             // token_ids, of vLLM
	generateFormat           // input_ids or text, of SGLang
	formFormat               // multipart/form-data
	engineFormat             // GenerateRequest, of vLLM for gRPC
	engineEmbedFormat        // EmbedRequest, likewise
	vertexChatFormat         // chat completions in a call to Vertex
	vertexRawFormat          // responses in a call to Vertex
)

// isGRPC reports whether a body of this format is one of gRPC.
func (f format) isGRPC() bool { return f >= engineFormat }

// wrapped returns the format of what a call to Vertex wraps.
func (f format) wrapped() format {
	if f == vertexChatFormat {
		return chatFormat
	}
	return responsesFormat
}

// suffixes says by how a path ends which format its body has. Of several the longest counts.
var suffixes = []struct {
	end string
	of  Formats
	is  format
}{
	{"chat/completions", OpenAI, chatFormat},
	{"completions", OpenAI, completionFormat},
	{"chat/completions/render", OpenAI, namedFormat},
	{"completions/render", OpenAI, namedFormat},
	{"responses", OpenAI, responsesFormat},
	{"embeddings", OpenAI, embeddingFormat},
	{"images/generations", OpenAI, imageFormat},
	{"audio/speech", OpenAI, namedFormat},
	{"conversations", OpenAI, namedFormat},
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
	case unknownFormat, namedFormat, embeddingFormat, imageFormat, formFormat:
	}
	return messages.UnknownAPI
}

// hasPriority reports whether model servers schedule requests of this format by a priority in their body.
func (f format) hasPriority() bool {
	switch f {
	case chatFormat, completionFormat, responsesFormat, embeddingFormat, imageFormat, messagesFormat, tokensFormat:
		return true
	case unknownFormat, namedFormat, generateFormat, formFormat, engineFormat, engineEmbedFormat, vertexChatFormat,
		vertexRawFormat:
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
	turns         // what is new with each request of a conversation
	prelude       // what stands before the turns, and counts as prompt with its keys
	shape         // it shapes the prompt, and is not in it
	sequence      // a text, texts, tokens, or lists of tokens
)

// partOf returns what a member is to the prompt of a format.
func (f format) partOf(key []byte) part {
	switch f {
	case chatFormat:
		switch string(key) {
		case "messages":
			return turns
		case "tools", "functions", "documents":
			return prelude
		case "chat_template", "chat_template_kwargs":
			return shape
		}
	case responsesFormat:
		switch string(key) {
		case "input":
			return turns
		case "tools", "instructions":
			return prelude
		case "previous_response_id", "conversation", "prompt":
			return shape
		}
	case messagesFormat:
		switch string(key) {
		case "messages":
			return turns
		case "tools", "system":
			return prelude
		}
	case completionFormat, imageFormat, embeddingFormat, tokensFormat, generateFormat:
		if f.isSequence(string(key)) {
			return sequence
		}
	case unknownFormat, namedFormat, formFormat, engineFormat, engineEmbedFormat, vertexChatFormat, vertexRawFormat:
	}
	return noPart
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
	case unknownFormat, namedFormat, chatFormat, responsesFormat, messagesFormat, formFormat, engineFormat,
		engineEmbedFormat, vertexChatFormat, vertexRawFormat:
	}
	return false
}
