package modelserver

import (
	"net"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

type answers chan messages.EndpointChecked

func (a answers) Post(m messages.OutlierMsg) bool {
	a <- m.(messages.EndpointChecked)
	return true
}

func (a answers) next(t *testing.T) messages.EndpointChecked {
	t.Helper()
	select {
	case m := <-a:
		return m
	case <-time.After(20 * time.Second):
		t.Fatal("no answer")
		return messages.EndpointChecked{}
	}
}

func TestCheckerConnects(t *testing.T) {
	open, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	shut, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	shut.Close()
	c, got := NewChecker(), make(answers, 1)
	for at, want := range map[string]bool{open.Addr().String(): true, shut.Addr().String(): false,
		"not an address": false} {
		id := messages.EndpointID{Slot: 1, Generation: 2}
		if !c.Check(id, messages.Address(at), got) {
			t.Fatalf("%s: refused", at)
		}
		if m := got.next(t); m != (messages.EndpointChecked{Endpoint: id, Connected: want}) {
			t.Errorf("%s: %+v, want %v", at, m, want)
		}
	}
	c.Close()
	if c.Check(messages.EndpointID{}, "127.0.0.1:1", got) {
		t.Error("a closed checker takes a check")
	}
}

func TestCheckerIsBounded(t *testing.T) {
	c := NewChecker()
	defer c.Close()
	for range maxChecks {
		c.places <- struct{}{}
	}
	if c.Check(messages.EndpointID{}, "127.0.0.1:1", make(answers, 1)) {
		t.Error("one check more than there are places")
	}
}
