package messages

type RecorderMsg interface{ recorderMsg() }

// RecordAsked says what became of a request; a query.
//
//	Reply: ListAnswered
type RecordAsked struct{}

// ListAsked is a query that
// is not marked.
type ListAsked struct{}

// OneAsked is a query without an answer.
//
//	Reply: none
type OneAsked struct{}

// ListAnswered is what is known of a query.
type ListAnswered struct{}

func (RecordAsked) recorderMsg()  {}
func (ListAsked) recorderMsg()    {}
func (OneAsked) recorderMsg()     {}
func (ListAnswered) recorderMsg() {}

func (RecordAsked) Refusable() {}
func (OneAsked) Refusable()    {}
