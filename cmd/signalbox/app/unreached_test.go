package app

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/signalbox-epp/signalbox/adapters/telemetry"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/outlier"
	"github.com/signalbox-epp/signalbox/messages"
)

// endpointsWith are two endpoints, a and b, with these outlier statuses.
func endpointsWith(a, b *outlier.Status) (all []*endpoints.Endpoint) {
	for i, s := range []*outlier.Status{a, b} {
		name := string(rune('a' + i))
		spec := messages.EndpointSpec{Name: name, Address: messages.Address(fmt.Sprintf("127.0.0.1:%d", i+1))}
		e := endpoints.New(messages.EndpointID{Slot: uint32(i), Generation: 1}, spec)
		endpoints.OutlierWriter{Endpoint: e}.SetOutlier(s)
		all = append(all, e)
	}
	return all
}

// Readiness names the servers that fail, and says if none takes connections.
func TestReadinessNamesServersThatFail(t *testing.T) {
	gone := &outlier.Status{Ejected: true, Cause: messages.ConnectFailed}
	failed := &outlier.Status{Cause: messages.ServerError}
	unread := endpointsWith(nil, nil)
	scraped(unread[1], true)
	broken := &outlier.Status{Ejected: true, Cause: messages.ConnectionBroken}
	dead := endpointsWith(broken, gone)
	scraped(dead[0], true)
	for want, all := range map[string][]*endpoints.Endpoint{
		"": endpointsWith(nil, outlier.Asleep()),
		"model servers that fail: b (127.0.0.1:2) is degraded (server-error)":      endpointsWith(nil, failed),
		"model servers that fail: b (127.0.0.1:2) has metrics that cannot be read": unread,
		"model servers that fail: a (127.0.0.1:1) is ejected (connect-failed)":     endpointsWith(gone, nil),
		"no model server can be reached: a (127.0.0.1:1) is ejected (connect-failed), " +
			"b (127.0.0.1:2) is degraded (connect-failed)": endpointsWith(gone, &outlier.Status{Cause: gone.Cause}),
		"model servers that fail: a (127.0.0.1:1) is ejected (connection-broken), " +
			"b (127.0.0.1:2) is ejected (connect-failed)": endpointsWith(broken, gone),
		"no model server can be reached: a (127.0.0.1:1) is ejected (connection-broken), " +
			"b (127.0.0.1:2) is ejected (connect-failed)": dead,
	} {
		if got := failing(all); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
	if got := failing(nil); got != "" {
		t.Errorf("without servers: got %q, want nothing", got)
	}
	many := slices.Repeat(endpointsWith(gone, gone), namedEndpoints)
	if got := failing(many); !strings.HasSuffix(got, fmt.Sprintf(", and %d more", namedEndpoints)) {
		t.Errorf("got %q, want %d names", got, namedEndpoints)
	}
}

// That no server can be reached is said once, and so is the end of it: by up on its console, else in the log.
func TestLossOfAllServersIsSaidOnce(t *testing.T) {
	gone := &outlier.Status{Ejected: true, Cause: messages.ConnectFailed}
	core, logged := observer.New(zapcore.InfoLevel)
	var said []string
	quiet := &tree{opts: &options{}, log: &telemetry.Log{Logger: zap.New(core)}}
	loud := &tree{opts: &options{hooks: hooks{say: func(format string, args ...any) {
		said = append(said, fmt.Sprintf(format, args...))
	}}}}
	for _, tr := range []*tree{quiet, loud} {
		lost := false
		for _, all := range [][]*endpoints.Endpoint{
			endpointsWith(gone, nil), endpointsWith(gone, gone), endpointsWith(gone, gone), endpointsWith(nil, gone),
			endpointsWith(nil, nil),
		} {
			lost = tr.tellReach(all, lost)
		}
	}
	var lines []string
	for _, e := range logged.All() {
		lines = append(lines, e.Level.String()+" "+e.Message)
	}
	if want := []string{"warn no model server can be reached",
		"info a model server can be reached again"}; !slices.Equal(lines, want) {
		t.Errorf("the log has %q, want %q", lines, want)
	}
	if len(said) != 2 || !strings.HasPrefix(said[0], "no model server can be reached: a (127.0.0.1:1) is ejected") ||
		said[1] != "a model server can be reached again" {
		t.Errorf("up says %q", said)
	}
}

// A running picker looks by itself.
func TestPickerLooksForServersThatCanBeReached(t *testing.T) {
	s := running(t)
	said := make(chan string, 1)
	s.tree.opts.hooks.say = func(format string, args ...any) { said <- fmt.Sprintf(format, args...) }
	gone := &outlier.Status{Ejected: true, Cause: messages.ConnectFailed}
	endpoints.Publisher{Published: s.tree.picker.Pool()}.Publish(
		endpoints.NewSnapshot(2, endpointsWith(gone, gone)), nil)
	go s.tree.watchReach(t.Context())
	select {
	case text := <-said:
		if !strings.HasPrefix(text, "no model server can be reached") || s.tree.concerns() != text {
			t.Errorf("says %q, and readiness %q", text, s.tree.concerns())
		}
	case <-time.After(20 * time.Second):
		t.Error("nothing is said within 20 s")
	}
}
