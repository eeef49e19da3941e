package scorers

// LoadAware is well kept.
type LoadAware struct{ Threshold int }

func (*LoadAware) Score() float32 { return 0 }

// Forgotten is not in the table.
type Forgotten struct{}

func (*Forgotten) Score() float32 { return 0 }

// Curve is exported, but no plugin.
type Curve struct{}

type inner struct{}

func (inner) Score() float32 { return 0 }

func init() { Types["late"] = nil }
