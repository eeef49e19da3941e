package messages

import "time"

// PoolMsg is what the pool receives: the actor that owns the set of endpoints and its version.
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
	Name      string // for people; endpoints of one name differ by address
	Namespace string
	Address   Address
	Labels    Map[string, string]
}

// EndpointsDiscovered is the whole set of endpoints of a source. Of an address that stands twice the last entry counts.
//
//	From:  discovery
//	To:    pool
//	Reply: none
type EndpointsDiscovered struct {
	Version uint64 // rises with each set of this source, from 1; one that is not newer is dropped
	// Found is when the source had the set: a file, when its reading began; names, when the last lookup was answered or
	// failed. Zero = unknown.
	Found     time.Time
	Endpoints List[EndpointSpec]
	// Unready are endpoints that get no requests now, and whose process is still the one that the source told last.
	Unready List[EndpointSpec]
	// Whole says that what is in neither list is gone. Without it, that may come back as the same process.
	Whole bool
}

// ConfigurationReplaced says that another configuration is in force. The endpoints stay as they are.
//
//	From:  runtime root
//	To:    pool
//	Reply: none
type ConfigurationReplaced struct{ Scraping ScrapingReplaced }

// EndpointRestarted says that a model server has restarted: its caches, queues and LoRA adapters are gone.
//
//	From:  scraper
//	To:    pool
//	Reply: none; the incarnation leaves and another one takes its place
type EndpointRestarted struct{ Endpoint EndpointID }

// SlotCleared says that the prefix index holds no blocks of a slot any more.
//
//	From:  prefix
//	To:    pool
//	Reply: none
type SlotCleared struct{ Endpoint EndpointID }

// PrefixLost says that the prefix actor ended or restarted. Its index is empty then, so all slots are clear.
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

// AcknowledgementOverdue says that the time for proxies to acknowledge an announcement is over: picks no longer wait
// for those that are late.
//
//	From:  pool, to itself
//	To:    pool
//	Reply: none
type AcknowledgementOverdue struct {
	Number uint64 // of the announcement, from 1
}

// LoopPassed says that nothing that runs on a loop reads an older snapshot than this one.
//
//	From:  shard
//	To:    pool
//	Reply: none
type LoopPassed struct {
	Loop    int    // index, from 0
	Version uint64 // of the snapshot, from 1
}

// RemovalDue says that the picks of endpoints that left have had time to reach the proxies, and the loops have had time
// to pass the snapshot without these endpoints.
//
//	From:  pool, to itself
//	To:    pool
//	Reply: none
type RemovalDue struct {
	Version uint64 // of that snapshot, from 1
}

// AbsenceOver says that the endpoint that was away the longest may have been so for as long as one may.
//
//	From:  pool, to itself
//	To:    pool
//	Reply: none
type AbsenceOver struct{}

func (PoolStarted) poolMsg()            {}
func (EndpointsDiscovered) poolMsg()    {}
func (ConfigurationReplaced) poolMsg()  {}
func (EndpointRestarted) poolMsg()      {}
func (SlotCleared) poolMsg()            {}
func (PrefixLost) poolMsg()             {}
func (EndpointsAcknowledged) poolMsg()  {}
func (AcknowledgementOverdue) poolMsg() {}
func (LoopPassed) poolMsg()             {}
func (RemovalDue) poolMsg()             {}
func (AbsenceOver) poolMsg()            {}
