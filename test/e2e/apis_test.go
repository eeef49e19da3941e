package e2e

import (
	"os"
	"strings"
	"testing"
)

// apisProgram calls every API with one of the official clients; its head says what it prints.
const apisProgram = "testdata/openai/apis.py"

// clientPythons are variables that name a Python with the package of a client.
var clientPythons = map[string]string{"openai": "OPENAI_PYTHON", "anthropic": "ANTHROPIC_PYTHON"}

// TestEnvoyOfficialClients calls every API of a simulated server with the official clients for Python, directly and
// through Envoy in both lanes. The clients must be given the same.
func TestEnvoyOfficialClients(t *testing.T) {
	seenElsewhere(t)
	for client, variable := range clientPythons {
		python := os.Getenv(variable)
		if python == "" {
			t.Logf("*** NO CLIENT OF %s: its calls were not tested. $%s may name a Python with the package %s. ***",
				strings.ToUpper(client), variable, client)
			continue
		}
		for lane, bootstrap := range lanes {
			t.Run(client+", "+lane, func(t *testing.T) {
				// the first servers of two processes: those of one process say other words
				s := startStackWith(t, bootstrap, append(simulated(t, 1, quick...), simulated(t, 1, quick...)...))
				ask := func(url string) []told {
					return runProgram(t, python, apisProgram, "--base", url, "--model", model, "--client", client)
				}
				direct := ask("http://" + s.servers[0])
				table, unequal := compareTold(direct, ask(s.envoy.url))
				t.Logf("%d calls\n%s", len(direct), table)
				for _, problem := range unequal {
					t.Error(problem)
				}
				s.picker.idle(t)
			})
		}
	}
}
