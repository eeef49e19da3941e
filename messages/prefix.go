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

// PromptPlaced enters a prompt's blocks for the endpoint that was picked, provisionally.
//
//	From:  cycle, at the pick
//	To:    prefix
//	Reply: none
type PromptPlaced struct {
	Request  RequestID
	Endpoint EndpointID
	Model    string // target model
	Salt     string
	Blocks   List[uint64] // chained, content only, first block first; at least one
}

// PromptServed confirms a prompt where it was served, or moves it there.
//
//	From:  cycle, at the response headers
//	To:    prefix
//	Reply: none
type PromptServed struct {
	Request  RequestID
	Endpoint EndpointID // generation 0 = an endpoint that the pool does not know: withdraw
}

// PromptEnded forgets the request. Blocks that were not confirmed are withdrawn.
//
//	From:  cycle, once, as its last word
//	To:    prefix
//	Reply: none
type PromptEnded struct {
	Request RequestID
	Failed  bool // ended before the first token: withdraw, also what was confirmed
}

// EndpointLeft says that an incarnation is gone: its blocks are worthless. A pool that was restarted asks again, slot
// by slot.
//
//	From:  pool
//	To:    prefix
//	Reply: SlotCleared to Pool, when nothing of the slot is left
type EndpointLeft struct {
	Endpoint EndpointID
	Pool     Sink[PoolMsg]
}

// DeparturesListed names who left each slot last, for an incarnation of either actor that knows of nobody. Slots that
// may hold something are asked for by EndpointLeft, one after the other, so that a restart never brings many answers
// at once.
//
//	From:  pool, at its start and when prefix was restarted
//	To:    prefix
//	Reply: none
type DeparturesListed struct{ Endpoints List[EndpointID] }

// SlotPartCleared says that a slot still holds blocks of an endpoint that left: the next part is due.
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
