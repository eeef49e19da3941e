package messages

// ShardMsg is what the shard of one loop receives: the parent of the loop's cycles.
//
//sumtype:decl
type ShardMsg interface{ shardMsg() }

// ShardStarted begins an incarnation of a shard.
//
//	From:  runtime root
//	To:    shard, first
//	Reply: none
type ShardStarted struct {
	Shard int // index of the loop, from 0
}

// RecordsQueried asks for this loop's records; a query.
//
//	From:  recorder
//	To:    shard
//	Reply: RecordsFound to Recorder, at once; CycleQueried goes to running cycles that match
type RecordsQueried struct {
	Query    QueryID
	Request  RequestID    // our id; 0 = any
	IDs      List[string] // one is the client's id of the request, or the response's id; empty = any
	Filter   RecordFilter // which the records must meet as well
	Newest   int          // number of records, if neither Request nor IDs is given
	Recorder Sink[RecorderMsg]
}

// RequestRefused carries the record of a request that never had a cycle: it was refused before its cycle could begin,
// or its client left before the request was whole. A request that its loop was too full to take has no record.
//
//	From:  stream
//	To:    shard, once for such a request
//	Reply: none
type RequestRefused struct{ Record Record }

// ExchangeLogged says that a request has ended whose response bypassed us.
//
//	From:  accesslog adapter
//	To:    shard
//	Reply: none; ResponseEnded goes to the request's cycle, if it runs
type ExchangeLogged struct {
	Request RequestID
	End     ResponseEnded
}

// ExchangeOngoing says how far a request has come whose response bypasses us.
//
//	From:  accesslog adapter
//	To:    shard, every few seconds of a request that runs
//	Reply: none; ResponseOngoing goes to the request's cycle, if it runs
type ExchangeOngoing struct {
	Request  RequestID
	Response ResponseOngoing
}

// LogStreamEnded says that a proxy ended its access log, or died: entries that it still had to send may never come.
//
//	From:  accesslog adapter
//	To:    shard of each loop
//	Reply: none; EntriesDoubted goes to every cycle that runs
type LogStreamEnded struct{}

// ConnectionDoubted says that the access log may never tell of the requests of a connection: the connection ended, or
// no entry of its requests came in time.
//
//	From:  peers adapter
//	To:    shard of each loop
//	Reply: none; EntriesDoubted goes to every cycle that runs
type ConnectionDoubted struct{ Connection ConnectionID }

// RecordsMissed asks again for requests whose cycles were asked and have not answered: a cycle may end before it
// handles the question.
//
//	From:  recorder
//	To:    shard, once after each RecordsFound or MissedFound that leaves some out
//	Reply: MissedFound to Recorder, at once
type RecordsMissed struct {
	Query    QueryID
	Requests List[RequestID]
	Recorder Sink[RecorderMsg]
}

// RingQueried asks for the newest events of this loop; a query.
//
//	From:  recorder
//	To:    shard
//	Reply: RingFound to Recorder, at once
type RingQueried struct {
	Query    QueryID
	Newest   int // events, at most
	Recorder Sink[RecorderMsg]
}

// SnapshotReplaced is a barrier: once a loop has handled it, nothing that runs on the loop reads an older snapshot than
// this one.
//
//	From:  pool
//	To:    shard of each loop
//	Reply: LoopPassed to Pool, at once
type SnapshotReplaced struct {
	Loop    int    // index of the shard's loop, from 0
	Version uint64 // of the snapshot, from 1
	Pool    Sink[PoolMsg]
}

func (ShardStarted) shardMsg()      {}
func (ExchangeLogged) shardMsg()    {}
func (ExchangeOngoing) shardMsg()   {}
func (LogStreamEnded) shardMsg()    {}
func (ConnectionDoubted) shardMsg() {}
func (RecordsQueried) shardMsg()    {}
func (RecordsMissed) shardMsg()     {}
func (RingQueried) shardMsg()       {}
func (RequestRefused) shardMsg()    {}
func (SnapshotReplaced) shardMsg()  {}

func (RecordsQueried) Refusable() {}
func (RingQueried) Refusable()    {}
