package messages

//sumtype:decl
type FlowMsg interface{ flowMsg() }

//sumtype:decl
type PoolMsg interface{ poolMsg() }

//sumtype:decl
type OpenMsg interface{}

//sumtype:decl
type WrongMsg interface{ somethingElse() }

type LoudMsg interface{ loudMsg(int) bool }

type Queued struct{}

func (Queued) flowMsg() {}
