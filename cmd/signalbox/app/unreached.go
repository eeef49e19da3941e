package app

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

// failing returns what readiness says of model servers at which something fails: those whose metrics cannot be read,
// and those that are no longer healthy. A picker with such servers is ready all the same, because it says of each
// request where it may go, or that it cannot be served.
func failing(all []*endpoints.Endpoint) string {
	names := whoFails(all)
	switch {
	case unreached(all):
		return "no model server can be reached: " + strings.Join(names, ", ")
	case len(names) == 0:
		return ""
	}
	return "model servers that fail: " + strings.Join(names, ", ")
}

// whoFails names the endpoints at which something fails, each with what it is, namedEndpoints at most.
func whoFails(all []*endpoints.Endpoint) (names []string) {
	for _, e := range all {
		if why := whyFailing(e); why != "" {
			names = append(names, nameOf(e.Spec)+" "+why)
		}
	}
	if n := len(names); n > namedEndpoints {
		names = append(names[:namedEndpoints], fmt.Sprintf("and %d more", n-namedEndpoints))
	}
	return names
}

// whyFailing returns what fails at an endpoint; "" = nothing does.
func whyFailing(e *endpoints.Endpoint) string {
	s := e.Outlier()
	switch {
	case s != nil && s.Cause == messages.Asleep: // that is no failure
		return ""
	case s != nil && s.Ejected:
		return "is ejected (" + s.Cause.String() + ")"
	case s != nil:
		return "is degraded (" + s.Cause.String() + ")"
	case e.Failing():
		return "has metrics that cannot be read"
	}
	return ""
}

// unreached reports whether there are endpoints, and none of them takes connections. One whose connections broke while
// it had requests, and whose metrics cannot be read since, takes none either.
func unreached(all []*endpoints.Endpoint) bool {
	for _, e := range all {
		s := e.Outlier()
		if s == nil || s.Cause != messages.ConnectFailed && (s.Cause != messages.ConnectionBroken || !e.Failing()) {
			return false
		}
	}
	return len(all) > 0
}

// watchReach looks at the endpoints every second until ctx is done.
func (t *tree) watchReach(ctx context.Context) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	lost := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			lost = t.tellReach(t.picker.Pool().Snapshot().Endpoints, lost)
		}
	}
}

// tellReach says when no model server can be reached any more, and when one can be reached again. It takes what it
// said last, and returns what holds now.
func (t *tree) tellReach(all []*endpoints.Endpoint, lost bool) bool {
	now := unreached(all)
	const back = "a model server can be reached again"
	switch say := t.opts.hooks.say; {
	case now == lost:
	case now && say != nil:
		say("%s", failing(all))
	case now:
		t.log.Warn("no model server can be reached", zap.String("servers", strings.Join(whoFails(all), ", ")))
	case say != nil:
		say(back)
	default:
		t.log.Info(back)
	}
	return now
}
