package messages

import "time"

// MemoryMsg is what the memory actor receives: the sole writer of what plugins keep of one request for later ones.
//
//sumtype:decl
type MemoryMsg interface{ memoryMsg() }

// MemoryStarted begins an incarnation of the memory actor, with empty tables.
//
//	From:  runtime root
//	To:    memory, first
//	Reply: none
type MemoryStarted struct{}

// PickKept says what plugins keep of a pick for later requests.
//
//	From:  cycle, at the pick; at the response headers, what another endpoint than the picked one is to have
//	To:    memory
//	Reply: none
type PickKept struct {
	Request RequestID
	Kept    List[Kept] // at least one
}

// Kept is what one plugin keeps: an entry of a table, in the place of an older one with the same key.
type Kept struct {
	Table    MemoryTable
	Key      uint64 // of the entry and of its plugin, hashed; never 0
	Endpoint EndpointID
	For      time.Duration // how long the entry counts; 0 = until it makes way
}

// MemoryTable is a table of the memory actor.
type MemoryTable uint8

const (
	SessionTable MemoryTable = iota // the endpoints of sessions
	UseTable                        // when endpoints were last used
	AdapterTable                    // the adapters of endpoints, by their last use
)

func (MemoryStarted) memoryMsg() {}
func (PickKept) memoryMsg()      {}
