package schedule

import "github.com/signalbox-epp/signalbox/messages"

// fewAddresses are looked through one by one; to look them up in a map would cost more.
const fewAddresses = 8

// allowed says which endpoints a request may go to. It belongs to one loop, and its map is used again.
type allowed struct {
	subset messages.Subset
	many   map[messages.Address]struct{} // of a long subset; else empty
}

// restrict begins a request. It takes time in proportion to a long subset, once, and none for a short one.
func (a *allowed) restrict(to messages.Subset) {
	a.subset = to
	if !to.Given || to.Addresses.Len() <= fewAddresses {
		return
	}
	if a.many == nil {
		a.many = make(map[messages.Address]struct{}, to.Addresses.Len())
	}
	for i := range to.Addresses.Len() {
		a.many[to.Addresses.At(i)] = struct{}{}
	}
}

// admits says whether an endpoint at this address may serve the request.
func (a *allowed) admits(address messages.Address) bool {
	if !a.subset.Given {
		return true
	}
	if len(a.many) > 0 {
		_, ok := a.many[address]
		return ok
	}
	for i := range a.subset.Addresses.Len() {
		if a.subset.Addresses.At(i) == address {
			return true
		}
	}
	return false
}

// forget lets go of what the request brought.
func (a *allowed) forget() {
	a.subset = messages.Subset{}
	clear(a.many)
}
