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

// PickKept says what plugins keep of a pick, and of what came of it, for later requests.
//
//	From:  cycle, at the pick, the response's headers if another endpoint serves, the first token and the end
//	To:    memory
//	Reply: none
type PickKept struct {
	Request       RequestID
	Configuration uint64     // under which the request runs
	Kept          List[Kept] // at least one
}

// Kept is what one plugin keeps: an entry of a table, in the place of an older one with the same key, or what changes
// one. What is not said to be of some tables alone is of all.
type Kept struct {
	Table    MemoryTable
	Key      uint64        // of the entry and of its plugin, hashed; never 0
	Endpoint EndpointID    // not of TurnTable
	For      time.Duration // how long the entry counts; 0 = until it makes way

	Turn  Turn       // of TurnTable
	Owner uint64     // of MediaTable and FirstTokenTable: the plugin, hashed
	Most  int        // of MediaTable: how many entries of the endpoint the plugin has room for, at least 1
	First FirstToken // of FirstTokenTable
}

// Turn is a request of a session that begins or ends.
type Turn struct {
	Ends         bool
	Completed    bool  // it ended with a whole answer
	InputTokens  int64 // as its answer reported; 0 = it did not
	OutputTokens int64 // likewise
}

// FirstToken is how long an endpoint took to a first token, and over what such times are summed up.
type FirstToken struct {
	Took     time.Duration // above 0
	Inflight int           // requests at the endpoint when it was picked, without this one
	Over     FirstTokenSpan
}

// FirstTokenSpan says over what the times of an endpoint are summed up. All of it is above 0.
type FirstTokenSpan struct {
	MaxAge       time.Duration // older ones do not count
	Most         int           // the newest count
	Least        int           // fewer say nothing
	Low, Typical int           // percentiles
	Bucket       time.Duration // each has one least time
	Buckets      int           // the newest count
}

// MemoryTable is a table of the memory actor.
type MemoryTable uint8

const (
	SessionTable    MemoryTable = iota // the endpoints of sessions
	UseTable                           // when endpoints were last used
	AdapterTable                       // the adapters of endpoints, by their last use
	TurnTable                          // the requests of sessions
	MediaTable                         // the images, sounds and files that endpoints were sent
	FirstTokenTable                    // how long endpoints took to first tokens
)

func (MemoryStarted) memoryMsg() {}
func (PickKept) memoryMsg()      {}
