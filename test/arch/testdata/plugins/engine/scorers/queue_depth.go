package scorers

// QueueDepth is well kept.
type QueueDepth struct{}

func (QueueDepth) Score() float32 { return 0 }
