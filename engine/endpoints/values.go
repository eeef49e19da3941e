package endpoints

import (
	"math"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/messages"
)

// Values are the attributes that one answer of a model server has. They are immutable.
type Values struct {
	Numbers []messages.Extracted // none is a Total
	Lists   []NameList
}

// NameList is an attribute of names. Values is never nil, for the answer has the attribute.
type NameList struct {
	Attribute, Producer string // as in messages.ExtractedNames
	Values              []string
}

// Value returns a number of an extractor; NaN = the answer does not have it.
func (v *Values) Value(attribute, producer string) float64 {
	for i := range v.Numbers {
		if e := &v.Numbers[i]; e.Attribute == attribute && e.Producer == producer {
			return e.Value
		}
	}
	return math.NaN()
}

// BuiltIn returns a number that is built in; NaN = the answer does not have it.
func (v *Values) BuiltIn(a attributes.Attribute) float64 { return v.Value(a.Name, "") }

// List returns names of an extractor, for reading only; nil = the answer does not have them.
func (v *Values) List(attribute, producer string) []string {
	for i := range v.Lists {
		if l := &v.Lists[i]; l.Attribute == attribute && l.Producer == producer {
			return l.Values
		}
	}
	return nil
}

// Names returns names that are built in, for reading only; nil = the answer does not have them.
func (v *Values) Names(a attributes.Attribute) []string { return v.List(a.Name, "") }
