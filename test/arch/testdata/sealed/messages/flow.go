package messages

type FlowMsg interface{ flowMsg() }

type PoolMsg interface{ poolMsg() }

type OpenMsg interface{}

type WrongMsg interface{ somethingElse() }

type LoudMsg interface{ loudMsg(int) bool }

type Queued struct{}

func (Queued) flowMsg() {}
