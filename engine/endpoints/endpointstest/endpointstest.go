// Package endpointstest makes answers of model servers for tests.
package endpointstest

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

// Told holds built-in attributes: an int or a float64 of a number, a []string of names. Others are unknown, and so is
// -1.
type Told map[attributes.Attribute]any

// Values returns the answer as an endpoint keeps it, ordered by attribute.
func (t Told) Values() (v endpoints.Values) {
	for a, value := range t {
		if a.Type == attributes.Names {
			names := append([]string{}, value.([]string)...)
			v.Lists = append(v.Lists, endpoints.NameList{Attribute: a.Name, Values: names})
			continue
		}
		if x := number(value); x != -1 {
			v.Numbers = append(v.Numbers, messages.Extracted{Attribute: a.Name, Value: x})
		}
	}
	slices.SortFunc(v.Lists, func(a, b endpoints.NameList) int { return cmp.Compare(a.Attribute, b.Attribute) })
	slices.SortFunc(v.Numbers, func(a, b messages.Extracted) int { return cmp.Compare(a.Attribute, b.Attribute) })
	return v
}

// Reading returns the answer as an engine's page is read, ordered by attribute.
func (t Told) Reading(engine string) messages.Reading {
	v, names := t.Values(), []messages.ExtractedNames(nil)
	for _, l := range v.Lists {
		names = append(names, messages.ExtractedNames{Attribute: l.Attribute, Names: messages.ListOf(l.Values...)})
	}
	return messages.Reading{Engine: engine, Numbers: messages.TakeList(v.Numbers), Names: messages.TakeList(names)}
}

// Load returns waiting and running requests, and the share of the KV cache in use.
func Load(waiting, running int, kvUsage float64) endpoints.Values {
	return Told{
		attributes.WaitingRequests: waiting, attributes.RunningRequests: running, attributes.KVCacheUsage: kvUsage,
	}.Values()
}

func number(value any) float64 {
	switch x := value.(type) {
	case int:
		return float64(x)
	case float64:
		return x
	}
	panic(fmt.Sprintf("got %T, want int or float64", value))
}
