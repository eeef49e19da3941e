package messages

import "time"

// PoolMsg is what the pool receives: the owner of the endpoint set and its version.
//
//sumtype:decl
type PoolMsg interface{ poolMsg() }

// PoolStarted begins an incarnation of the pool.
//
//	From:  runtime root
//	To:    pool, first
//	Reply: none
type PoolStarted struct{}

// EndpointSpec is one endpoint as discovery found it.
type EndpointSpec struct {
	Name      string // of the entry, for people; several addresses of one name share it
	Namespace string
	Address   Address
	Labels    Map[string, string]
}

// EndpointsDiscovered is the whole set of endpoints of a source. An address that stands twice counts once, the last
// wins.
//
//	From:  discovery
//	To:    pool
//	Reply: none
type EndpointsDiscovered struct {
	Version uint64 // rises with each set of this source, from 1; one that is not newer is dropped
	// when the source had it: it began to read, the last name was answered or failed; zero = not known
	Found     time.Time
	Endpoints List[EndpointSpec]
}

// EndpointRestarted says that a model server began anew: caches, queues and adapters are gone.
//
//	From:  scraper
//	To:    pool
//	Reply: none; the incarnation leaves and another one takes its place
type EndpointRestarted struct{ Endpoint EndpointID }

// SlotCleared says that the prefix index holds nothing of a slot any more.
//
//	From:  prefix
//	To:    pool
//	Reply: none
type SlotCleared struct{ Endpoint EndpointID }

// PrefixLost says that the prefix actor ended or restarted: all slots that it had yet to clear are clear.
//
//	From:  runtime, the notice of a watch
//	To:    pool
//	Reply: none
type PrefixLost struct{}

// EndpointsAcknowledged says that every connected proxy has taken the set of an announcement, or of a later one.
//
//	From:  xds adapter
//	To:    pool
//	Reply: none
type EndpointsAcknowledged struct {
	Number uint64 // of the announcement, from 1
}

// AcknowledgementOverdue says that an announcement has had its time: picks no longer wait for proxies that are late.
//
//	From:  pool, to itself
//	To:    pool
//	Reply: none
type AcknowledgementOverdue struct {
	Number uint64 // of the announcement, from 1
}

// LoopPassed says that nothing runs on a loop that has seen an older snapshot than this.
//
//	From:  shard
//	To:    pool
//	Reply: none
type LoopPassed struct {
	Loop    int    // index, from 0
	Version uint64 // of the snapshot, from 1
}

// RemovalDue says that picks of endpoints that left have had time to arrive, and loops to pass the snapshot without
// them.
//
//	From:  pool, to itself
//	To:    pool
//	Reply: none
type RemovalDue struct {
	Version uint64 // of that snapshot, from 1
}

func (PoolStarted) poolMsg()            {}
func (EndpointsDiscovered) poolMsg()    {}
func (EndpointRestarted) poolMsg()      {}
func (SlotCleared) poolMsg()            {}
func (PrefixLost) poolMsg()             {}
func (EndpointsAcknowledged) poolMsg()  {}
func (AcknowledgementOverdue) poolMsg() {}
func (LoopPassed) poolMsg()             {}
func (RemovalDue) poolMsg()             {}
