package strictyaml

import (
	"fmt"
	"reflect"
	"testing"
)

// go vet tells an author of these, if he calls it.
func TestFieldsThatCannotBeSet(t *testing.T) {
	whole := reflect.TypeFor[int]()
	hidden := reflect.StructField{Name: "hidden", PkgPath: "example.com/other", Type: whole, Tag: `json:"hidden"`}
	a := reflect.StructField{Name: "A", Type: whole, Tag: `json:"a"`}
	b := a
	b.Name = "B"
	for want, fields := range map[string][]reflect.StructField{
		"hidden is the field hidden, which is not exported": {a, hidden},
		"a is the name of two fields":                       {a, b},
		"<nil>":                                             {a},
	} {
		if err := Check(reflect.StructOf(fields)); fmt.Sprint(err) != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
