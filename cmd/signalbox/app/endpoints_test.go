package app

import (
	"strings"
	"testing"
)

// What is never scraped has no sample yet to wait for.
func TestEndpointsSayWhyTheyAreNotScraped(t *testing.T) {
	list := "endpoints:\n- {name: a, address: 127.0.0.1, port: \"9\"}\n"
	prefix := "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\nplugins: [{type: prefix-cache-scorer}]\n"
	for name, c := range map[string]struct {
		config    string
		says      []string
		saysNever string
	}{
		"default": {"", []string{`"scraped": true`, `"not_scraped": ""`}, "not scraped"},
		"unread": {randomPicking, []string{`"scraped": false`, `"not_scraped": "no plugin reads samples"`,
			"not scraped: no plugin reads samples"}, "none yet"},
		"no source": {prefix + "dataLayer: {injectDefaults: false}\n",
			[]string{`"scraped": false`, "not scraped: dataLayer.injectDefaults is false"}, "none yet"},
	} {
		t.Run(name, func(t *testing.T) {
			file := t.TempDir() + "/endpoints.yaml"
			writeText(t, file, list)
			at := asked{url: "http://" + running(t, "--endpoints", file, "--config-text", c.config).at("metrics-port")}
			_, asJSON := at.get(t, "/debug/endpoints?format=json")
			_, asText := at.get(t, "/debug/endpoints?format=text")
			for _, want := range c.says {
				if !strings.Contains(asJSON+asText, want) {
					t.Errorf("want %q in\n%s%s", want, asJSON, asText)
				}
			}
			if strings.Contains(asText, c.saysNever) {
				t.Errorf("%q stands in\n%s", c.saysNever, asText)
			}
		})
	}
}
