package scorers

// This says nothing of its type.
type KVCache struct{}

func (KVCache) Score() float32 { return 0 }
