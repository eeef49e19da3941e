package peers

import (
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/signalbox-epp/signalbox/messages"
)

// scene is a table in a bubble of its own time.
type scene struct {
	*testing.T
	*Table
	ears    sync.Mutex
	doubted []messages.ConnectionID
	lines   *observer.ObservedLogs
}

func inBubble(t *testing.T, play func(*scene)) {
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zap.InfoLevel)
		s := &scene{T: t, lines: lines}
		s.Table = NewTable(Deps{Log: zap.New(core), Doubted: func(id messages.ConnectionID) {
			s.ears.Lock()
			defer s.ears.Unlock()
			s.doubted = append(s.doubted, id)
		}})
		play(s)
	})
}

// from is a connection from an address.
func (s *scene) from(host string) *Connection {
	return s.connected(&net.TCPAddr{IP: net.ParseIP(host), Port: 40_000})
}

// asking is a connection that has asked in the light lane.
func (s *scene) asking(host string) *Connection {
	c := s.from(host)
	c.Asked(false)
	return c
}

// log is an access log stream from an address.
func (s *scene) log(host, node, version string) *Log {
	l := &Log{table: s.Table, host: host}
	l.Identified(node, version)
	return l
}

func (s *scene) wants(c *Connection, want messages.LogState) {
	s.Helper()
	if got := c.Log(); got != want {
		s.Errorf("connection %d: log state %d, want %d", c.ID(), got, want)
	}
}

func (s *scene) wantsDoubt(want ...messages.ConnectionID) {
	s.Helper()
	synctest.Wait()
	s.ears.Lock()
	defer s.ears.Unlock()
	slices.Sort(s.doubted) // timers of one instant fire in any order
	if !slices.Equal(s.doubted, want) {
		s.Errorf("doubted %v, want %v", s.doubted, want)
	}
	s.doubted = nil
}

// wantsLines checks the lines of the log so far, by their beginning, and forgets them.
func (s *scene) wantsLines(want ...string) {
	s.Helper()
	synctest.Wait()
	var got []string
	for _, e := range s.lines.TakeAll() {
		text, _, _ := strings.Cut(e.Message, ":")
		for _, f := range e.Context {
			if f.Key == "node" || f.Key == "version" || f.Key == "lane" || f.Key == "access_log" {
				text += " " + f.String
			}
		}
		got = append(got, text)
	}
	if !slices.Equal(got, want) {
		s.Errorf("lines %q, want %q", got, want)
	}
}

// A proxy without an access log: a warning for all its connections together, and doubt of what was taken for logged.
func TestLogThatNeverComes(t *testing.T) {
	inBubble(t, func(s *scene) {
		a, b := s.asking("10.0.0.1"), s.asking("10.0.0.1")
		s.wantsLines("a proxy connects unknown unknown light none")
		s.wants(a, messages.LogAwaited)
		<-time.After(entryWithin - 1)
		s.wants(a, messages.LogAwaited)
		s.wants(b, messages.LogAwaited)
		s.wantsDoubt()
		<-time.After(1)
		s.wantsDoubt(a.ID())
		s.wants(a, messages.LogMissing)
		s.wants(b, messages.LogAwaited)
		<-time.After(entryWithin)
		s.wantsDoubt(b.ID())
		s.wants(b, messages.LogMissing)
		s.wantsLines("a proxy hides response bodies and sends no access log unknown unknown light missing")
		<-time.After(time.Hour)
		s.wants(a, messages.LogMissing)
		a.end()
		s.wantsLines()
		b.end()
		s.wantsLines("a proxy leaves unknown unknown light missing")
		s.wantsDoubt(a.ID(), b.ID())
	})
}

// An entry of a request shows that the connection's log comes, also late, and on which proxy it is.
func TestEntryNamesTheConnection(t *testing.T) {
	inBubble(t, func(s *scene) {
		c := s.asking("10.0.0.1")
		s.wants(c, messages.LogAwaited)
		l := s.log("192.168.0.9", "edge", "1.40.0") // by another address
		s.wants(c, messages.LogAwaited)
		l.Spoke(c.ID())
		s.wants(c, messages.LogSeen)
		<-time.After(2 * entryWithin)
		s.wantsDoubt()
		s.wants(c, messages.LogSeen)
		s.wantsLines("a proxy connects unknown unknown light none",
			"a proxy sends its access log edge 1.40.0 light seen")
		want := []View{{From: "192.168.0.9", Node: "edge", Version: "1.40.0", Connections: 1, Light: 1,
			AccessLog: "seen"}}
		if diff := cmp.Diff(want, s.Views(), cmpopts.IgnoreFields(View{}, "Since")); diff != "" {
			t.Errorf("views, want -, got +:\n%s", diff)
		}
		if v := s.Views()[0]; time.Since(v.Since) != 2*entryWithin {
			t.Errorf("known since %v, want since it connected", v.Since)
		}

		late := s.asking("10.0.0.2")
		late.Log()
		<-time.After(entryWithin)
		s.wantsDoubt(late.ID())
		s.wants(late, messages.LogMissing)
		l.Spoke(late.ID())
		s.wants(late, messages.LogSeen)
		<-time.After(2 * entryWithin)
		s.wantsDoubt()
	})
}

// What one connection of an address is told of counts for the others, also if their own first response takes long: a
// proxy may send final entries only. So does a log that tells of another picker's requests, and one that begins to
// speak while they wait.
func TestLogOfTheAddressCounts(t *testing.T) {
	for name, named := range map[string]bool{"ours": true, "another picker's": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(s *scene) {
				l := s.log("10.0.0.1", "edge", "1.40.0")
				c := s.asking("10.0.0.1")
				s.wants(c, messages.LogAwaited) // it has told of nothing
				if l.Spoke(0); named {
					l.Spoke(s.asking("10.0.0.1").ID())
				}
				s.wants(c, messages.LogSeen)
				stranger := s.asking("10.0.0.2")
				s.wants(stranger, messages.LogAwaited)
				<-time.After(entryWithin)
				s.wantsDoubt(stranger.ID())
				s.wants(c, messages.LogSeen)
				if n := s.lines.FilterLevelExact(zap.WarnLevel).Len(); n != 1 {
					t.Errorf("%d warnings, want one of the stranger", n)
				}
				l.Gone() // nothing speaks for it any more
				s.wants(c, messages.LogAwaited)
				<-time.After(entryWithin)
				s.wantsDoubt(c.ID())
				s.wants(c, messages.LogMissing)
			})
		})
	}
}

// The entry of a request whose client left before its pick names no connection, but shows that a log comes.
func TestEntryWithoutAConnectionEndsTheWait(t *testing.T) {
	inBubble(t, func(s *scene) {
		c, l := s.asking("10.0.0.1"), s.log("10.0.0.1", "edge", "1.40.0")
		s.wants(c, messages.LogAwaited)
		l.Spoke(0)
		<-time.After(2 * entryWithin)
		s.wantsDoubt()
		s.wants(c, messages.LogSeen)
	})
}

// The warning says what was measured, and names both settings.
func TestWarningNamesTheSettings(t *testing.T) {
	inBubble(t, func(s *scene) {
		s.asking("10.0.0.1").Log()
		<-time.After(entryWithin)
		synctest.Wait()
		text := s.lines.FilterLevelExact(zap.WarnLevel).All()[0].Message
		within := "no entry within " + strings.TrimSuffix(entryWithin.String(), "s") + " s"
		for _, want := range []string{within, "envoy.access_loggers.http_grpc", "access_log_flush_interval"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q does not name %q", text, want)
			}
		}
	})
}

// A log that ended proves nothing of what comes after it, until it goes on.
func TestLogThatEnds(t *testing.T) {
	inBubble(t, func(s *scene) {
		c, l := s.asking("10.0.0.1"), s.log("10.0.0.1", "edge", "")
		l.Spoke(c.ID())
		s.wants(c, messages.LogSeen)
		l.Gone()
		s.wants(c, messages.LogAwaited)
		again := s.log("10.0.0.1", "edge", "")
		again.Spoke(c.ID())
		s.wants(c, messages.LogSeen)
		<-time.After(2 * entryWithin)
		s.wantsDoubt()
		again.Gone()
		s.wants(c, messages.LogAwaited)
		<-time.After(entryWithin)
		s.wantsDoubt(c.ID())
	})
}

// The end of a connection is doubt, if a response may run on that came by it. Nothing is left of it.
func TestConnectionThatEnds(t *testing.T) {
	inBubble(t, func(s *scene) {
		silent, full, light := s.from("10.0.0.1"), s.from("10.0.0.1"), s.asking("10.0.0.1")
		full.Asked(true)
		full.Asked(true)
		s.wants(light, messages.LogAwaited)
		for _, c := range []*Connection{silent, full, light} {
			c.end()
			c.Asked(false) // by a stream that was about to
		}
		s.wantsDoubt(light.ID())
		if len(s.proxies) != 0 || len(s.connections) != 0 {
			t.Errorf("left: %d proxies, %d connections", len(s.proxies), len(s.connections))
		}
		l := s.log("10.0.0.1", "edge", "")
		l.Spoke(light.ID()) // an entry that comes after it
		s.wants(light, messages.LogAwaited)
		l.Gone()
		<-time.After(2 * entryWithin)
		s.wantsDoubt()
		if len(s.proxies) != 0 || len(s.connections) != 0 {
			t.Errorf("left: %d proxies, %d connections", len(s.proxies), len(s.connections))
		}
	})
}

// Proxies of one address are told apart by the names in their logs; what is configured over xDS is a proxy, too.
func TestProxiesAreToldApart(t *testing.T) {
	inBubble(t, func(s *scene) {
		first := s.Configured("10.0.0.1:5000", "a", "1.39.3")
		mine := s.asking("10.0.0.1") // the only one known there
		full := s.from("10.0.0.3")
		full.Asked(true)
		a, b := s.log("10.0.0.1", "a", "1.39.3"), s.log("10.0.0.1", "b", "1.40.0")
		other := s.asking("10.0.0.1")
		b.Spoke(other.ID())
		b.Spoke(mine.ID())
		a.Spoke(mine.ID())
		want := []View{
			{From: "10.0.0.1", Node: "a", Version: "1.39.3", Connections: 1, Light: 1, AccessLog: "seen", XDS: true},
			{From: "10.0.0.1", Node: "b", Version: "1.40.0", Connections: 1, Light: 1, AccessLog: "seen"},
			{From: "10.0.0.3", Connections: 1, Full: 1, AccessLog: "not needed"},
		}
		if diff := cmp.Diff(want, s.Views(), cmpopts.IgnoreFields(View{}, "Since")); diff != "" {
			t.Errorf("views, want -, got +:\n%s", diff)
		}
		s.lines.TakeAll()
		first()
		a.Gone()
		mine.end()
		s.wantsLines("a proxy leaves a 1.39.3 light seen")
		other.end()
		b.Gone()
		s.wantsLines("a proxy leaves b 1.40.0 light seen")
	})
}

func TestCloseEndsTheTimers(t *testing.T) {
	inBubble(t, func(s *scene) {
		s.asking("10.0.0.1").Log()
		s.Close()
		<-time.After(2 * entryWithin)
		s.wantsDoubt()
	})
}

// What a request costs here once its proxy is known: nothing is allocated, nothing locked.
func TestRequestOfAKnownProxyCostsNothing(t *testing.T) {
	s := NewTable(Deps{Log: zap.NewNop(), Doubted: func(messages.ConnectionID) {}})
	c := s.connected(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1})
	c.Asked(false)
	l := &Log{table: s, host: "10.0.0.1"}
	l.Identified("edge", "1.40.0")
	l.Spoke(c.ID())
	s.mu.Lock() // a call that needs it would wait for ever
	defer s.mu.Unlock()
	if n := testing.AllocsPerRun(100, func() {
		c.Asked(false)
		l.Spoke(c.ID())
		if c.Log() != messages.LogSeen {
			t.Error("the log is not seen")
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// The log says that a proxy sends entries once one has come, and once in its life; also if they tell of another
// picker's requests.
func TestLineOfTheFirstEntry(t *testing.T) {
	inBubble(t, func(s *scene) {
		l := s.log("10.0.0.1", "edge", "1.40.0")
		s.wantsLines()
		l.Spoke(0)
		s.wantsLines("a proxy sends its access log edge 1.40.0 unknown seen")
		c := s.asking("10.0.0.1")
		s.wantsLines("a proxy connects edge 1.40.0 light seen")
		l.Spoke(c.ID())
		l.Gone()
		again := s.log("10.0.0.1", "edge", "1.40.0")
		again.Spoke(c.ID())
		c.end()
		again.Gone()
		s.wantsLines("a proxy leaves edge 1.40.0 light seen")
	})
}
