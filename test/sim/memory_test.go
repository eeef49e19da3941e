package sim_test

import (
	"github.com/signalbox-epp/signalbox/engine/runtime"
	"github.com/signalbox-epp/signalbox/messages"
)

// keptModel is what the memory actor has, by the key of each entry. No entry expires or makes way in a run.
type keptModel map[messages.Kept]bool

// keep enters an entry. Adapters are those of one incarnation of an endpoint, the newest that had any.
func (k keptModel) keep(one messages.Kept) {
	entry := messages.Kept{Table: one.Table, Key: one.Key}
	if one.Table != messages.AdapterTable {
		k[entry] = true
		return
	}
	for other := range k {
		switch {
		case other.Table != one.Table || other.Endpoint.Slot != one.Endpoint.Slot:
		case other.Endpoint.Generation > one.Endpoint.Generation:
			return
		case other.Endpoint.Generation < one.Endpoint.Generation:
			delete(k, other)
		}
	}
	entry.Endpoint = one.Endpoint
	k[entry] = true
}

// keeping is a memory actor whose messages the model hears, too, once they were handled.
type keeping struct {
	runtime.Actor[messages.MemoryMsg]
	model keptModel
}

func (k *keeping) Receive(ctx runtime.Context[messages.MemoryMsg], m messages.MemoryMsg) {
	k.Actor.Receive(ctx, m)
	switch m := m.(type) {
	case messages.MemoryStarted:
		clear(k.model)
	case messages.PickKept:
		for _, one := range m.Kept.All() {
			k.model.keep(one)
		}
	}
}

func (k *keeping) Stopped(ctx runtime.Context[messages.MemoryMsg]) {
	k.Actor.Stopped(ctx)
	clear(k.model)
}
