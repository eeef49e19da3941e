package schedule

// List returns what the candidates show, for comparisons.
func (c Candidates) List() []Endpoint { return append([]Endpoint{}, c.list...) }
