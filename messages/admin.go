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
	Lost    uint64 // records that made way for newer ones since the start
	Partial bool   // a shard did not answer in time
}

func (RecordsAnswered) adminMsg() {}
