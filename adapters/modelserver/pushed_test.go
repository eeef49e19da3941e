package modelserver

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// What is told of objects is as it is now, until it is told otherwise; strings where numbers are wanted are unknown.
func TestTell(t *testing.T) {
	s := newScene(t, Config{}, say(""))
	s.fetcher.Tell("hints", []byte(`{"a": {"cost": 9}}`), nil) // nothing of this name wants it
	s.fetcher.Read(hints(Further{Objects: "Hint"}))
	if m := s.ask("a"); m.Failure != "the objects are not known yet" || !m.Shared {
		t.Errorf("got %+v, want that nothing is known", m)
	}
	s.fetcher.Tell("hints", nil, errors.New("forbidden"))
	if m := s.ask("a"); m.Failure != "forbidden" {
		t.Errorf("got %+v, want why nothing is known", m)
	}
	s.fetcher.Tell("hints", []byte(`{"a": {"cost": 3}, "b": {"cost": "high"}, "c": "nonsense"}`), nil)
	if m := s.ask("a"); cost(m) != 3 || !m.Shared || m.Age != 0 || m.Expires != 0 {
		t.Errorf("got %+v, want the cost 3 as it is now", m)
	}
	for _, name := range []string{"b", "c", "d"} {
		if m := s.ask(name); m.Failure != "" || m.Reading.Numbers.Len() != 0 {
			t.Errorf("%s: got %+v, want no value and no failure", name, m)
		}
	}
	s.fetcher.Tell("hints", nil, errors.New("too large"))
	if m := s.ask("a"); cost(m) != 3 || m.Failure != "" {
		t.Errorf("got %+v, want what was told before", m)
	}
	s.fetcher.Read(hints(Further{Objects: "Rack"}))
	if m := s.ask("a"); m.Failure != "the objects are not known yet" {
		t.Errorf("got %+v, want none of the objects of another kind", m)
	}
	s.fetcher.Tell("hints", nil, errors.New("forbidden"))
	if m := s.ask("a"); m.Failure != "forbidden" {
		t.Errorf("got %+v, want why none of this kind is known", m)
	}
	if _, err := s.fetcher.Push("hints", []byte(`{}`), time.Minute); !errors.Is(err, ErrNotPushed) {
		t.Errorf("it is pushed: %v", err)
	}
	s.fetcher.Read(hints(Further{Pushed: true}))
	if m := s.ask("a"); m.Failure != "nothing was pushed yet" {
		t.Errorf("got %+v, want that nothing was pushed: it was told before", m)
	}
}

func TestPush(t *testing.T) {
	s := newScene(t, Config{}, say(""))
	s.fetcher.Read(hints(Further{Pushed: true}))
	if m := s.ask("a"); m.Failure != "nothing was pushed yet" || !m.Shared {
		t.Errorf("got %+v, want that nothing was pushed", m)
	}
	values, err := s.fetcher.Push("hints",
		[]byte(`{"a": {"cost": 3}, "b": {"cost": true}, "c": {"cost": null}, "d": {}}`),
		time.Minute)
	if err != nil || fmt.Sprint(values) != "map[a/b:2]" {
		t.Errorf("got %v, %v, want 2 values", values, err)
	}
	m := s.ask("a")
	if cost(m) != 3 || !m.Shared || m.PageBytes != 0 || m.Age+m.Expires < 59*time.Second || m.Expires > time.Minute {
		t.Errorf("got %+v, want the cost 3 for a minute since it was pushed", m)
	}
	if m := s.ask("b"); cost(m) != 1 {
		t.Errorf("got %+v, want 1 for true", m)
	}
	for text, want := range map[string]string{
		`{"a": {"cost": "3"}, "b": {"cost": []}}`: "a.cost: got a string, want a number, true or false; b.cost: got a " +
			"list, want a number, true or false",
		`{"a": {"cost": {}}}`: "a.cost: got an object, want",
		`{"a": 7, "b": true}`: "a: got a number, want an object or a list; b: got true or false",
		`"a"`:                 "the document: got a string, want an object or a list",
		`{"a": `:              "unexpected end",
		`{} {}`:               "invalid character '{' after top-level value, at byte 4",
		"":                    "unexpected end",
	} {
		_, err := s.fetcher.Push("hints", []byte(text), time.Minute)
		unfit, ok := errors.AsType[UnfitError](err)
		if !ok || !strings.Contains(unfit.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
		if m := s.ask("a"); cost(m) != 3 {
			t.Errorf("%s: it changed something: %+v", text, m)
		}
	}
	s.fetcher.Read(hints(Further{Pushed: true, Every: time.Second})) // another configuration
	if m := s.ask("a"); cost(m) != 3 {
		t.Errorf("got %+v, want what was pushed before", m)
	}
	if _, err := s.fetcher.Push("hints", []byte(`{"a": {"cost": 9}}`), time.Nanosecond); err != nil {
		t.Error(err)
	}
	if m := s.ask("a"); m.Failure != "what was pushed last has expired" {
		t.Errorf("got %+v, want that it has expired", m)
	}
}

func TestPushIsBoundedAndForSourcesThatWait(t *testing.T) {
	s := newScene(t, Config{}, say(""))
	s.fetcher.Read(hints(Further{Pushed: true}))
	many := ""
	for i := range 100 {
		many += fmt.Sprintf(`"e%d": 1, `, i)
	}
	_, err := s.fetcher.Push("hints", []byte("{"+strings.TrimSuffix(many, ", ")+"}"), time.Minute)
	if unfit, _ := errors.AsType[UnfitError](err); len(unfit) != mostProblems {
		t.Errorf("got %d problems, want the first %d", len(unfit), mostProblems)
	}
	s.fetcher.Read(hints(Further{File: "x"}))
	for _, source := range []string{"hints", "gone", ""} {
		if _, err := s.fetcher.Push(source, []byte(`{}`), time.Minute); !errors.Is(err, ErrNotPushed) {
			t.Errorf("%s: got %v, want that it waits for nothing", source, err)
		}
	}
}
