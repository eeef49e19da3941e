package discovery

import (
	"slices"

	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/filters"
	"github.com/signalbox-epp/signalbox/messages"
)

// Change is what a set of endpoints that the pool took differs in from the set before. An endpoint of which only
// labels changed is in neither list.
type Change struct {
	Endpoints      int      // addresses in the set
	Added, Removed []string // "name (address)", sorted
	OddRoles       []string // "name: role" of those that have it since and that no filter reads, sorted
}

// Difference returns what changes from one set to another.
func Difference(before, after []messages.EndpointSpec) Change {
	earlier, later := named(before), named(after)
	c := Change{Endpoints: len(later)}
	for address, text := range later {
		if earlier[address] != text {
			c.Added = append(c.Added, text)
		}
	}
	for address, text := range earlier {
		if later[address] != text {
			c.Removed = append(c.Removed, text)
		}
	}
	known := oddRolesOf(before)
	for text := range oddRolesOf(after) {
		if !known[text] {
			c.OddRoles = append(c.OddRoles, text)
		}
	}
	slices.Sort(c.OddRoles)
	slices.Sort(c.Added)
	slices.Sort(c.Removed)
	return c
}

func named(set []messages.EndpointSpec) map[messages.Address]string {
	texts := make(map[messages.Address]string, len(set))
	for _, s := range set {
		texts[s.Address] = s.Name + " (" + string(s.Address) + ")"
	}
	return texts
}

func oddRolesOf(set []messages.EndpointSpec) map[string]bool {
	odd := map[string]bool{}
	for _, s := range set {
		if role, labelled := s.Labels.Get(filters.RoleLabel); labelled && isOdd(role) {
			odd[s.Name+": "+clip.Value(role)] = true
		}
	}
	return odd
}

// isOdd reports whether no filter reads a role.
func isOdd(role string) bool { return !slices.Contains(filters.Roles, role) }

// noteWarnings reports what is doubtful in the file, if it differs from the last time.
func (f *File) noteWarnings(warnings Warnings) {
	if len(warnings) > 0 && !slices.Equal(warnings, f.warnings) && f.cfg.Warnings != nil {
		f.cfg.Warnings(warnings)
	}
	f.warnings = warnings
}
