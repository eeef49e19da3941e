package strictyaml

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
)

// Check returns why Decode cannot decode onto some field of a struct, with its path; nil = it can onto all.
func Check(t reflect.Type) error { return checkStruct(t, "", nil) }

func writesText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextMarshaler]())
}

// Written returns the text of a value whose type reads and writes text by itself; false = it does not.
func Written(v reflect.Value) (string, bool) {
	if !ReadsText(v.Type()) || !writesText(v.Type()) {
		return "", false
	}
	at := reflect.New(v.Type()) // its methods may want a pointer
	at.Elem().Set(v)
	text, err := at.Interface().(encoding.TextMarshaler).MarshalText()
	return string(text), err == nil
}

func checkStruct(t reflect.Type, prefix string, within []reflect.Type) error {
	if slices.Contains(within, t) {
		return fmt.Errorf("%s is a %v, which contains itself", prefix[:max(len(prefix)-1, 0)], t)
	}
	within = append(within, t)
	names := map[string]bool{}
	for _, f := range FieldsOf(t) {
		path := prefix + f.Name
		of := t
		for _, i := range f.Index[:len(f.Index)-1] {
			if of = of.Field(i).Type; of.Kind() == reflect.Pointer {
				return fmt.Errorf("%s is in a %v, which is embedded as a pointer", path, of)
			}
		}
		switch field := t.FieldByIndex(f.Index); {
		case !field.IsExported():
			return fmt.Errorf("%s is the field %s, which is not exported", path, field.Name)
		case names[f.Name]:
			return fmt.Errorf("%s is the name of two fields", path)
		}
		names[f.Name] = true
		if err := checkValue(f.Type, path, within); err != nil {
			return err
		}
	}
	return nil
}

func checkValue(t reflect.Type, path string, within []reflect.Type) error {
	switch {
	case t == nodeType:
		return nil
	case ReadsText(t) && !writesText(t):
		return fmt.Errorf("%s is a %v, which has UnmarshalText and no MarshalText", path, t)
	case ReadsText(t):
		return nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		return checkValue(t.Elem(), path, within)
	case reflect.Slice:
		return checkValue(t.Elem(), path+"[]", within)
	case reflect.Struct:
		return checkStruct(t, path+".", within)
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			return fmt.Errorf("%s is a %v, want keys that are strings", path, t)
		}
		return checkValue(t.Elem(), path+"{}", within)
	}
	if v := reflect.Zero(t); v.CanInt() || v.CanUint() && t.Kind() != reflect.Uintptr || v.CanFloat() ||
		t.Kind() == reflect.String || t.Kind() == reflect.Bool {
		return nil
	}
	return fmt.Errorf("%s is a %v, which no parameter can be", path, t)
}
