package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"text/tabwriter"
)

// kindsProgram asks one server every kind of request with the OpenAI client; its head says what it prints.
const kindsProgram = "testdata/openai/kinds.py"

// told is what came of one request of kindsProgram.
type told struct {
	Kind     string          `json:"kind"`
	Way      string          `json:"way"`  // whole, streamed, or raw: without the OpenAI client
	Want     string          `json:"want"` // what the server is known to do
	AsWanted bool            `json:"as_wanted"`
	Got      json.RawMessage `json:"got"` // keys in order, without what differs between equal requests
	// Signalbox refuses it in its own words: the same status is enough
	Refused bool `json:"refused"`
}

// TestEnvoyOpenAIClient asks a model server directly, and the same through Envoy and Signalbox: the client must be
// given the same. $OPENAI_PYTHON is a Python with the package openai. The servers are those of TestEnvoyModelServers.
func TestEnvoyOpenAIClient(t *testing.T) {
	seenElsewhere(t)
	python := os.Getenv("OPENAI_PYTHON")
	if python == "" {
		t.Log("*** NO OPENAI CLIENT: nothing was tested. $OPENAI_PYTHON may name a Python with the package openai. ***")
		return
	}
	f := newFleet(t)
	ask := func(url string) []told { return askAll(t, python, url, f) }
	s := startStack(t, f.servers)
	direct := ask("http://" + f.servers[0])
	before := make([]int, len(f.servers))
	for i, server := range f.servers {
		before[i] = served(server)
	}
	through := ask(s.envoy.url)
	table, unequal := compareTold(direct, through)
	t.Logf("%d requests\n%s", len(direct), table)
	for _, problem := range unequal {
		t.Error(problem)
	}
	want := len(through)
	for _, one := range through {
		if one.Refused {
			want--
		}
	}
	if n := s.picker.picks(); n != want {
		t.Errorf("%d picks for %d requests that are not refused", n, want)
	}
	for i, server := range f.servers {
		if served(server) == before[i] {
			t.Errorf("%s served none of the requests", server)
		}
	}
	s.picker.idle(t)
}

// askAll runs kindsProgram against one server.
func askAll(t *testing.T, python, url string, f *fleet) []told {
	t.Helper()
	args := []string{"--base", url, "--model", f.model}
	if f.simulated {
		args = append(args, "--simulated")
	}
	return runProgram(t, python, kindsProgram, args...)
}

// runProgram runs a program that prints what clients were told.
func runProgram(t *testing.T, python, program string, args ...string) []told {
	t.Helper()
	args = append([]string{program}, args...)
	command := exec.CommandContext(t.Context(), python, args...)
	var problems bytes.Buffer
	command.Stderr = &problems
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", command.Args, err, problems.String())
	}
	var all []told
	for line := range bytes.Lines(out) {
		var one told
		if err := json.Unmarshal(line, &one); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		all = append(all, one)
	}
	return all
}

// compareTold gives a table of all kinds, and a line for each that is not as it should be: the answers differ, or the
// server itself did not answer as it is known to. Requests that were sent at once share a row.
func compareTold(direct, through []told) (table string, problems []string) {
	if len(direct) == 0 || len(direct) != len(through) {
		return "", []string{fmt.Sprintf("%d answers of the server, %d through Envoy", len(direct), len(through))}
	}
	var text strings.Builder
	rows := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(rows, "kind\tway\tdirect\tthrough\tequal")
	var atOnce, alike int
	for i, d := range direct {
		h := through[i]
		same := bytes.Equal(d.Got, h.Got) || d.Refused && d.brief() == h.brief()
		equal := d.Kind == h.Kind && d.Way == h.Way && same
		switch {
		case !d.AsWanted:
			problems = append(problems, fmt.Sprintf("%s, %s: the server itself gave %s, want %s", d.Kind, d.Way, d.Got,
				d.Want))
		case !equal:
			problems = append(problems, fmt.Sprintf("%s, %s:\n\tdirect  %s\n\tthrough %s", d.Kind, d.Way, d.Got, h.Got))
		}
		if strings.HasPrefix(d.Kind, "at once") {
			atOnce++
			if equal {
				alike++
			}
			continue
		}
		fmt.Fprintf(rows, "%s\t%s\t%s\t%s\t%v\n", d.Kind, d.Way, d.brief(), h.brief(), equal)
	}
	fmt.Fprintf(rows, "%d at once\thalf streamed\t\t\t%d\n", atOnce, alike)
	rows.Flush()
	return text.String(), problems
}

// brief is the status of an answer, or the exception that the client raised.
func (a *told) brief() string {
	var got struct {
		Exception string `json:"exception"`
		Status    any    `json:"status"` // of a response object it is a word
	}
	if err := json.Unmarshal(a.Got, &got); err != nil {
		return err.Error()
	}
	brief := got.Exception
	if status, ok := got.Status.(float64); ok {
		brief = strings.TrimSpace(fmt.Sprint(brief, " ", status))
	}
	return cmp.Or(brief, "ok")
}

// A difference, a row that is missing, and a server that fails are all seen.
func TestComparisonOfAnswersSeesDifferences(t *testing.T) {
	row := func(kind, got string, asWanted bool) told {
		return told{Kind: kind, Way: "whole", Want: "ok", AsWanted: asWanted, Got: json.RawMessage(got)}
	}
	bad := told{Kind: "body cut", AsWanted: true, Refused: true, Got: json.RawMessage(`{"status":400,"body":"vLLM's"}`)}
	ours, none := bad, bad
	ours.Got, none.Got = json.RawMessage(`{"status":400,"body":"ours"}`), json.RawMessage(`{"status":500}`)
	good, once := row("chat", `{"text":"a"}`, true), row("at once, 1", `{"text":"b"}`, true)
	tests := map[string]struct {
		direct, through []told
		want            int
	}{
		"equal":           {[]told{good, once}, []told{good, once}, 0},
		"another text":    {[]told{good}, []told{row("chat", `{"text":"b"}`, true)}, 1},
		"another at once": {[]told{good, once}, []told{good, row("at once, 1", `{"text":"c"}`, true)}, 1},
		"not as wanted": {[]told{row("chat", `{"status":500}`, false)}, []told{row("chat", `{"status":500}`, false)},
			1},
		"a row is missing": {[]told{good, once}, []told{good}, 1},
		"nothing at all":   {nil, nil, 1},
		"refused as well":  {[]told{bad}, []told{ours}, 0},
		"refused wrongly":  {[]told{bad}, []told{none}, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if table, got := compareTold(test.direct, test.through); len(got) != test.want {
				t.Errorf("%d problems, want %d: %q\n%s", len(got), test.want, got, table)
			}
		})
	}
}
