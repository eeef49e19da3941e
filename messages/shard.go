package messages

// ShardMsg is what the shard of one loop receives: the parent of the cycles on it.
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
	Request  RequestID // 0 = not by our id
	ClientID string    // "" = not by the client's id
	Newest   int       // how many, if neither is given
	Recorder Sink[RecorderMsg]
}

func (ShardStarted) shardMsg()   {}
func (RecordsQueried) shardMsg() {}

func (RecordsQueried) Refusable() {}
