package scorers

type Silent struct{}

func (Silent) Score() float32 { return 0 }
