package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// object is any object of the API server. Its spec and status stay undecoded, so that one object with a field of the
// wrong type spoils neither the list nor the watch that brought it. The API server itself guarantees the types of the
// metadata.
type object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   json.RawMessage `json:"spec"`
	Status json.RawMessage `json:"status"`
}

// objects is a list of objects.
type objects struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []object `json:"items"`
}

// DeepCopyObject makes object a runtime.Object.
func (o *object) DeepCopyObject() runtime.Object {
	c := *o
	o.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c // raw messages are never written to
}

// DeepCopyObject makes objects a runtime.Object.
func (l *objects) DeepCopyObject() runtime.Object {
	c := *l
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	c.Items = make([]object, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopyObject().(*object)
	}
	return &c
}

// decode decodes a part of an object, and names the field whose type is wrong. An absent part is left as it is.
func decode(part string, raw json.RawMessage, into any) error {
	if len(raw) == 0 {
		return nil
	}
	err := json.Unmarshal(raw, into)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		path := strings.TrimSuffix(part+"."+wrong.Field, ".") // the field of the part itself has no name
		return fmt.Errorf("%s: got %s, want %s", path, wrong.Value, kindOf(wrong))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", part, err)
	}
	return nil
}

// kindOf returns the wanted type of a field as people who write YAML call it.
func kindOf(wrong *json.UnmarshalTypeError) string {
	kinds := map[string]string{
		"map": "a mapping", "struct": "a mapping", "slice": "a list", "string": "a text", "bool": "true or false",
	}
	if text, ok := kinds[wrong.Type.Kind().String()]; ok {
		return text
	}
	return "a number"
}

// annotation returns the value of the first of several names that an object has.
func annotation(all map[string]string, names ...string) (value string, ok bool) {
	for _, name := range names {
		if value, ok = all[name]; ok {
			return value, true
		}
	}
	return "", false
}
