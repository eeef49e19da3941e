package messages

// PrefixMsg is what the prefix actor receives: the sole writer of the prefix index.
//
//sumtype:decl
type PrefixMsg interface{ prefixMsg() }

// PrefixStarted begins an incarnation of the prefix actor, with an empty index.
//
//	From:  runtime root
//	To:    prefix, first
//	Reply: none
type PrefixStarted struct{}

// PromptPlaced enters a prompt's blocks for the picked endpoint, provisionally: PromptServed confirms them.
//
//	From:  cycle, at the pick
//	To:    prefix
//	Reply: none
type PromptPlaced struct {
	Request  RequestID
	Endpoint EndpointID
	Stages   List[EndpointID] // other endpoints that will hold the prompt, such as a prefill server
	Model    string           // target model
	Salt     string
	Blocks   List[uint64] // as in Request; at least one
	Sizes    PrefixSizes  // that hold from now on, unless those of a newer configuration do

	Configuration uint64 // that the request came under
}

// PrefixSizes say how much of prompts the prefix index keeps for an endpoint, and in which blocks prompts are compared.
type PrefixSizes struct {
	Capacity    int  // blocks; 0 = the index's default
	BlockTokens int  // tokens of a block; less than a block of the index has = as many as that
	Tuned       bool // what an endpoint's page says of its cache goes before both
	Follows     bool // the index holds what an endpoint's cache does: as much, and nothing that answers show to be lost
}

// PromptServed confirms a prompt's blocks at the stages and at the endpoint that serves the request,
// or moves them there.
//
//	From:  cycle, at the response headers
//	To:    prefix
//	Reply: none
type PromptServed struct {
	Request  RequestID
	Endpoint EndpointID // generation 0 = no endpoint of the pool serves it: the blocks are withdrawn
}

// PromptEnded says that a request has ended. Blocks that were not confirmed are withdrawn.
//
//	From:  cycle, once, as its last word
//	To:    prefix
//	Reply: none
type PromptEnded struct {
	Request RequestID
	Failed  bool // it ended before the first token: confirmed blocks are withdrawn too

	Prompt ReportedPrompt
}

// ReportedPrompt is what a server reported of a prompt in its answer. The zero ReportedPrompt is no report.
type ReportedPrompt struct {
	API          API  // of the answer; servers may report cached tokens in some forms of answers alone
	Stream       bool // the answer was server-sent events
	PromptTokens int  // at least 1
	Media        int  // images, sounds and files in the prompt, whose tokens are not told by their bytes
	CachedTokens int  // of these
	CachedKnown  bool // CachedTokens was reported, be it 0
}

// EndpointLeft says that an incarnation has left the pool: its blocks are to be cleared. A pool that was restarted
// sends it again, slot by slot.
//
//	From:  pool
//	To:    prefix
//	Reply: SlotCleared to Pool, when nothing of the slot is left
type EndpointLeft struct {
	Endpoint EndpointID
	Pool     Sink[PoolMsg]
}

// DeparturesListed names the incarnation that left each slot last, because a restarted prefix actor knows of none.
// Slots that may hold blocks are asked for by EndpointLeft, one after the other, so that a restart never brings many
// answers at once.
//
//	From:  pool, at its start and when prefix was restarted
//	To:    prefix
//	Reply: none
type DeparturesListed struct{ Endpoints List[EndpointID] }

// SlotPartCleared says that a part of a slot has been cleared, and that the next part is due: the slot still holds
// blocks of an endpoint that left.
//
//	From:  prefix, to itself
//	To:    prefix
//	Reply: none
type SlotPartCleared struct{ Endpoint EndpointID }

func (PrefixStarted) prefixMsg()    {}
func (PromptPlaced) prefixMsg()     {}
func (PromptServed) prefixMsg()     {}
func (PromptEnded) prefixMsg()      {}
func (EndpointLeft) prefixMsg()     {}
func (DeparturesListed) prefixMsg() {}
func (SlotPartCleared) prefixMsg()  {}
