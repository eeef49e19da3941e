package messages

// StreamMsg is what a stream is told.
//
//sumtype:decl
type StreamMsg interface{ streamMsg() }

// PickMade answers a stream.
//
//	From:  cycle
//	To:    stream
//	Reply: none
type PickMade struct{ Labels Map[string, string] }

// PickFailed answers a stream.
//
//	From:  cycle
//	To:    stream
//	Reply: none
type PickFailed struct{}

func (PickMade) streamMsg()   {}
func (PickFailed) streamMsg() {}
