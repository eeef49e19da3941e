package sim_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The kinds of faults that are drawn, apart from panics and restarts of actors, whose kinds are made from their names.
const (
	timerLate     = "timer late"
	overtaking    = "messages across pairs in another order"
	inboxDoor     = "inbox full: at the door"
	inboxLine     = "inbox full: at the line"
	inboxQuery    = "inbox full: at a query"
	inboxMemory   = "inbox full: at a wish for memory"
	queryLost     = "query never answered"
	backUnder     = "endpoint removed and added again under requests"
	rebornUnder   = "endpoint restarted under requests"
	oldSet        = "an old endpoint set"
	emptySet      = "no endpoint at all"
	waitLate      = "a wait begins late"
	waitReject    = "wait rejected"
	waitEvict     = "wait evicted"
	waitRevoke    = "revoked after a wait"
	turnLost      = "turn never answered"
	fetchClosed   = "fetch refused"
	fetchLost     = "fetch never answered"
	fetchFailed   = "fetch failed"
	fetchTooLate  = "fetch answered after it was given up"
	servedElse    = "served by another endpoint"
	servedUnknown = "served by no endpoint of the pool"
	serverFailed  = "model server answered 5xx"
	answerFailed  = "model server told of an error in its answer"
	serverSilent  = "model server went silent"
	entryLost     = "access log entry never came"
	logEnded      = "a proxy's access log ended"
	logUnproven   = "a proxy had sent no access log yet, or sends none"
	shortDeadline = "short deadline of the request"
)

// steps are where in its life a client leaves.
var steps = []string{
	"before the request is whole", "in the breath in which it came", "before the answer", "after the answer",
	"after response headers",
	"after the first token", "while tokens flow", "after the response ended",
}

func goneAt(step string) string { return "client gone: " + step }

// pluginFaults are what a plugin of each family does wrong.
var pluginFaults = map[string][]string{
	"filter":  {"panics", "keeps nothing"},
	"scorer":  {"panics", "scores NaN", "scores out of range"},
	"picker":  {"panics", "picks nothing", "picks one twice", "picks out of range"},
	"handler": {"panics at Next", "panics at Primary", "names a profile out of range", "names a result out of range"},

	"admitter":    {"panics", "refuses", "refuses for a reason of others"},
	"pre-request": {"panics", "refuses", "sets a header that it may not"},
	"end":         {"panics"},
	"gate":        {"panics"},
}

// slips are all faults of plugins, sorted.
func slips() []string {
	var all []string
	for family, list := range pluginFaults {
		for _, what := range list {
			all = append(all, pluginFault(family, what))
		}
	}
	slices.Sort(all)
	return all
}

func pluginFault(family, what string) string { return family + " " + what }

// restarting are the actors that begin anew after a panic.
var restarting = []string{"capacity", "memory", "outlier", "pool", "prefix", "recorder", "scraper", "shard",
	"window"}

func restartOf(actor string) string { return "restart of " + actor }

func panicAt(actor, message, when string) string {
	return "panic of " + actor + " " + when + " " + message
}

const (
	before  = "before"
	after   = "after"
	ending  = "in"      // Stopped, once the actor gave back what it held
	stopped = "Stopped" // as if it were a message
)

// received are the messages of each actor, read from the source, so that one more message is one more kind of fault.
func received() map[string][]string {
	out := map[string][]string{}
	files, err := filepath.Glob("../../messages/*.go")
	if err != nil || len(files) == 0 {
		panic("no source of the messages: the test runs in its own folder")
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			panic(err)
		}
		for _, d := range f.Decls {
			if actor, message := marker(d); actor != "" {
				out[actor] = append(out[actor], message)
			}
		}
	}
	delete(out, "admin") // these are no actors of the tree
	delete(out, "xds")
	delete(out, "stream")
	return out
}

// marker reads a method such as func (PickMade) streamMsg() {}.
func marker(d ast.Decl) (actor, message string) {
	f, ok := d.(*ast.FuncDecl)
	if !ok || f.Recv == nil || !strings.HasSuffix(f.Name.Name, "Msg") {
		return "", ""
	}
	typ, ok := f.Recv.List[0].Type.(*ast.Ident)
	if !ok {
		return "", ""
	}
	return strings.TrimSuffix(f.Name.Name, "Msg"), typ.Name
}

// panics are all kinds of panics, sorted.
func panics() []string {
	var all []string
	for actor, names := range received() {
		for _, name := range names {
			all = append(all, panicAt(actor, name, after))
			if !spared[name] {
				all = append(all, panicAt(actor, name, before))
			}
		}
		all = append(all, panicAt(actor, stopped, ending))
	}
	slices.Sort(all)
	return all
}

// kinds are all faults that there are.
func kinds() []string {
	all := append([]string{
		timerLate, overtaking, inboxDoor, inboxLine, inboxQuery, inboxMemory, queryLost, backUnder, rebornUnder, oldSet,
		emptySet, waitLate, waitReject, waitEvict, waitRevoke, turnLost, fetchClosed, fetchLost, fetchFailed,
		fetchTooLate, servedElse, servedUnknown, serverFailed, answerFailed, serverSilent, shortDeadline, entryLost,
		logEnded, logUnproven,
	}, append(panics(), slips()...)...)
	for _, s := range steps {
		all = append(all, goneAt(s))
	}
	for _, family := range fragile {
		all = append(all, policyFault(family))
	}
	for _, actor := range restarting {
		all = append(all, restartOf(actor))
	}
	slices.Sort(all)
	return all
}

// rare reports whether few runs have a message: capacity seldom lives for two seconds after an answer to a turn was
// lost, and the five minutes of an absence end after all faults.
func rare(kind string) bool {
	return strings.HasSuffix(kind, "TurnOverdue") || strings.HasSuffix(kind, "AbsenceOver")
}

// complete checks that every kind of fault was met, and that none has escaped the list.
func complete(t *testing.T, drawn map[string]int) {
	t.Helper()
	all := kinds()
	total := 0
	for _, kind := range all {
		if drawn[kind] == 0 && !rare(kind) {
			t.Errorf("no seed met: %s", kind)
		}
		total += drawn[kind]
	}
	for _, kind := range slices.Sorted(maps.Keys(drawn)) {
		if !slices.Contains(all, kind) {
			t.Errorf("met, but not listed: %s", kind)
		}
	}
	t.Logf("%d faults of %d kinds", total, len(all))
}
