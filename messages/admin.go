package messages

// AdminMsg is what the admin adapter is told.
//
//sumtype:decl
type AdminMsg interface{ adminMsg() }

// RecordsAnswered answers a query for records, the newest first.
//
//	From:  recorder
//	To:    admin, exactly once for each query
//	Reply: none
type RecordsAnswered struct {
	Records List[Record]
	Unasked int    // running requests that may match and were not asked, because there are too many
	Lost    uint64 // records that made way for newer ones since the start
	Partial bool   // a shard did not answer in time
}

// RingsAnswered answers a query for the newest events of loops.
//
//	From:  recorder
//	To:    admin, exactly once for each query
//	Reply: none
type RingsAnswered struct {
	Rings   List[Ring] // by loop, ascending; empty if there is no such loop
	Loops   int        // how many there are
	Partial bool       // a loop did not answer in time
}

func (RecordsAnswered) adminMsg() {}
func (RingsAnswered) adminMsg()   {}
