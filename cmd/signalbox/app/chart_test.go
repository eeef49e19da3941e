package app

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// chartFolder is the Helm chart, whose values name flags.
const chartFolder = "../../../deploy/helm/signalbox/"

// A flag can be set by the chart's value router.epp.flags, whose schema names no others but those of the reference that
// the chart refuses with advice.
func TestChartTakesEveryFlag(t *testing.T) {
	text, err := os.ReadFile(chartFolder + "values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	helpers, err := os.ReadFile(chartFolder + "templates/_helpers.tpl")
	if err != nil {
		t.Fatal(err)
	}
	type object struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	for _, name := range []string{"router", "epp", "flags"} {
		var o object
		if err := json.Unmarshal(text, &o); err != nil {
			t.Fatal(err)
		}
		text = o.Properties[name]
	}
	var taken object
	if err := json.Unmarshal(text, &taken); err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	newOptions(nil).register(flags)
	flags.VisitAll(func(f *pflag.Flag) {
		if taken.Properties[f.Name] == nil && !f.Hidden {
			t.Errorf("deploy/helm/signalbox/values.schema.json lacks the flag %s: add it to router.epp.flags, with "+
				"the types of the others", f.Name)
		}
	})
	for name := range taken.Properties {
		if flags.Lookup(name) == nil && !strings.Contains(string(helpers), `"`+name+`"`) {
			t.Errorf("deploy/helm/signalbox/values.schema.json has %s, which is no flag, and is not refused",
				name)
		}
	}
}
