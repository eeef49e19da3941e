package schedule

import "github.com/signalbox-epp/signalbox/messages"

// Seen is what an input shows.
type Seen struct {
	IDs     []messages.EndpointID
	Fresh   []bool
	Numbers [][]float64
	Names   [][][]string
}

// Seen returns a copy of what the input shows, for comparisons.
func (in *Input) Seen() (s Seen) {
	for i, c := range in.Candidates().All() {
		s.IDs, s.Fresh = append(s.IDs, c.ID()), append(s.Fresh, in.run.view.fresh[in.run.place[i]]&1 != 0)
	}
	for slot := range in.run.view.numbers.columns {
		s.Numbers = append(s.Numbers, append([]float64{}, in.run.numbers(slot)...))
	}
	for slot := range in.run.view.names.columns {
		s.Names = append(s.Names, append([][]string{}, in.run.names(slot)...))
	}
	return s
}
