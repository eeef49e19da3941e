package cycle

// Phase returns the name of the request's phase.
func (c *Cycle) Phase() string { return c.phase.String() }

// Arrows returns the arrows of the picture, as "from to".
func Arrows() (all []string) {
	for from, to := range arrows {
		for next := range done + 1 {
			if to&(1<<next) != 0 {
				all = append(all, phase(from).String()+" "+next.String())
			}
		}
	}
	return all
}
