package scorers

// LoRAAffinity is well kept.
type LoRAAffinity struct{}

func (LoRAAffinity) Score() float32 { return 0 }
