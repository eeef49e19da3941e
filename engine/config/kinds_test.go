package config

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// grade is an enumeration that reads itself.
type grade int

func (g *grade) UnmarshalText(text []byte) error {
	at := map[string]grade{"low": 1, "high": 2}[string(text)]
	if *g = at; at == 0 {
		return errors.New("want low or high")
	}
	return nil
}

func (g grade) MarshalText() ([]byte, error) { return []byte([]string{"none", "low", "high"}[g]), nil }

type word string

type inner struct {
	Share float32 `json:"share"`
}

// kinds has parameters of every kind.
type kinds struct {
	even
	Int8   int8             `json:"int8"`
	Int64  int64            `json:"int64"`
	Uint   uint             `json:"uint"`
	Byte   uint8            `json:"byte"`
	Small  float32          `json:"small"`
	Every  time.Duration    `json:"every"`
	Grade  grade            `json:"grade"`
	Word   word             `json:"word"`
	Grid   [][]int16        `json:"grid"`
	Parts  []inner          `json:"parts"`
	Named  map[word]inner   `json:"named"`
	Lists  map[string][]int `json:"lists"`
	Maybe  *uint32          `json:"maybe"`
	Grades []grade          `json:"grades"`
}

func newKinds() any { return &kinds{Int64: 1 << 40, Small: .5, Grade: 1, Byte: 9, Every: time.Second} }

// Parameters of a plugin of another module have any kind that a file can hold, with its range.
func TestParametersOfEveryKind(t *testing.T) {
	c, err := NewCatalogue(PluginType{Type: "example.com/kinds", New: newKinds})
	if err != nil {
		t.Fatal(err)
	}
	load := func(parameters string) (*kinds, error) {
		cfg, err := Load([]byte(newHead+"plugins: [{type: example.com/kinds, parameters: {"+parameters+"}}]"),
			Settings{Destinations: 1, Catalogue: c})
		if err != nil {
			return nil, err
		}
		return cfg.Plan.Profiles()[0].Filters[0].Filter.(*kinds), nil
	}
	got, err := load("int8: -128, int64: 9007199254740993, uint: 18446744073709551615, byte: 255.0, small: 1, " +
		"every: 2m, grade: high, word: x, grid: [[1, 2], [], [-3]], parts: [{share: 0.25}], named: {a: {share: 2}}, " +
		"lists: {a: [1]}, maybe: 7, grades: [low, high]")
	if err != nil {
		t.Fatal(err)
	}
	seven := uint32(7)
	want := &kinds{
		Int8: -128, Int64: 9007199254740993, Uint: 1<<64 - 1, Byte: 255, Small: 1, Every: 2 * time.Minute, Grade: 2,
		Word: "x", Grid: [][]int16{{1, 2}, nil, {-3}}, Parts: []inner{{.25}}, Named: map[word]inner{"a": {2}},
		Lists: map[string][]int{"a": {1}}, Maybe: &seven, Grades: []grade{1, 2},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	for parameters, want := range map[string]string{
		"int8: 300":            "parameters.int8: got 300, want a whole number from -128 to 127",
		"int8: 300.0":          "parameters.int8: got 300.0, want a whole number from -128 to 127",
		"byte: -1":             "parameters.byte: got -1, want a whole number from 0 to 255",
		"byte: -1.0":           "parameters.byte: got -1.0, want a whole number from 0 to 255",
		"uint: -1":             "parameters.uint: got -1, want a whole number, 0 or more",
		"int64: 1.5":           "parameters.int64: got 1.5, want a whole number",
		"small: 1e300":         "parameters.small: got 1e300, want a number",
		"small: many":          `parameters.small: got "many", want a number`,
		"grade: middle":        `parameters.grade: got "middle": want low or high`,
		"grade: [low]":         "parameters.grade: got a list, want text",
		"every: 5":             "parameters.every: got 5, want a duration",
		"grid: [[1], [40000]]": "parameters.grid[1][0]: got 40000, want a whole number from -32768 to 32767",
		"parts: [{shar: 1}]":   "parameters.parts[0].shar: unknown key, did you mean share?",
		"named: {a: 1}":        "parameters.named.a: got 1, want a mapping",
		"maybe: -1":            "parameters.maybe: got -1, want a whole number from 0 to 4294967295",
	} {
		if _, err := load(parameters); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: got %v, want %q", parameters, err, want)
		}
	}
	schema, err := Schema(c)
	for _, want := range []string{`"maximum": 127`, `"minimum": -128`, `"default": 1099511627776`, `"default": "low"`} {
		if err != nil || !strings.Contains(string(schema), want) {
			t.Errorf("the schema, %v, lacks %s", err, want)
		}
	}
	for _, f := range c.Describe() {
		for _, p := range f.Plugins {
			if p.Type == "example.com/kinds" {
				described(t, p.Parameters)
			}
		}
	}
}

func described(t *testing.T, all []Parameter) {
	t.Helper()
	got := map[string]string{}
	for _, q := range all {
		got[q.Name] = q.Kind + " " + q.Default
	}
	for name, want := range map[string]string{
		"int64": "int64 1099511627776", "small": "number 0.5", "byte": "uint8 9", "grade": "text low",
		"every": "duration 1s", "grid": "list of list of int16 ", "named": "map of objects ",
	} {
		if got[name] != want {
			t.Errorf("%s is described as %q, want %q", name, got[name], want)
		}
	}
}

// blind does not say what it has read.
type blind struct{}

func (*blind) UnmarshalText([]byte) error { return nil }

type chain struct {
	even
	Next *chain `json:"next"`
}

type pointed struct {
	*inner
	even
}

// What no value of a file can become is refused when the type is added, by its name.
func TestParametersThatCannotBeRead(t *testing.T) {
	for want, made := range map[string]any{
		"its parameter far.near[] is a chan int, which no parameter can be": &struct {
			even
			Far struct {
				Near []chan int `json:"near"`
			} `json:"far"`
		}{},
		"its parameter any is a interface {}, which no parameter can be": &struct {
			even
			Any any `json:"any"`
		}{},
		"its parameter three is a [3]int, which no parameter can be": &struct {
			even
			Three [3]int `json:"three"`
		}{},
		"its parameter blind is a config.blind, which has UnmarshalText and no MarshalText": &struct {
			even
			Blind blind `json:"blind"`
		}{},
		"its parameter by is a map[int]string, want keys that are strings": &struct {
			even
			By map[int]string `json:"by"`
		}{},
		"its parameter next is a config.chain, which contains itself":               &chain{},
		"its parameter share is in a *config.inner, which is embedded as a pointer": &pointed{},
	} {
		_, err := NewCatalogue(PluginType{Type: "a", New: func() any { return made }})
		if !strings.HasSuffix(fmt.Sprint(err), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
