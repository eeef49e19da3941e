package messages

// AdminMsg is what the admin adapter is told.
//
//sumtype:decl
type AdminMsg interface{ adminMsg() }

// RecordsAnswered is all that is known of a query, the newest first.
//
//	From:  recorder
//	To:    admin, exactly once for each query
//	Reply: none
type RecordsAnswered struct {
	Records List[Record]
	Unasked int    // requests that run and were not asked, though the query may mean them: they are too many
	Lost    uint64 // records that made way for newer ones since the start
	Partial bool   // a shard did not answer in time
}

// RingsAnswered is what the loops did last.
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
