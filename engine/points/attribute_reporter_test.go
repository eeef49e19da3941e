package points_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/engine/points"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// reporter has one attribute called n.
func reporter(expression, condition string) *points.AttributeReporter {
	r := points.Types["request-attribute-reporter"]().(*points.AttributeReporter)
	r.Attributes = []points.ReportedAttribute{{
		Key: points.AttributeKey{Name: "n"}, Expression: expression, Condition: condition,
	}}
	return r
}

func TestAttributeReporter(t *testing.T) {
	const both = "has(usage.prompt_tokens) && has(usage.completion_tokens)"
	for name, c := range map[string]struct {
		expression, condition string
		usage                 messages.Usage
		want                  schedule.Report
	}{
		"completion": {"usage.completion_tokens", "has(usage.completion_tokens)",
			messages.Usage{PromptTokens: 7, OutputTokens: 10}, schedule.Report{Value: 10}},
		"sum": {"usage.prompt_tokens + usage.completion_tokens", both,
			messages.Usage{PromptTokens: 7, OutputTokens: 10}, schedule.Report{Value: 17}},
		"total": {"usage.total_tokens", "", messages.Usage{PromptTokens: 7, OutputTokens: 10},
			schedule.Report{Value: 17}},
		"a price": { // 7-4 tokens at 1, 4 at a tenth, 10 at 3: 3 + 0.4 + 30 = 33.4, whose fraction is cut off
			"usage.prompt_tokens - usage.prompt_tokens_details.cached_tokens * 0.9 + 3.0 * usage.completion_tokens", "",
			messages.Usage{PromptTokens: 7, CachedTokens: 4, OutputTokens: 10}, schedule.Report{Value: 33}},
		"fraction below 0": {"-1.9 * usage.completion_tokens", "", messages.Usage{OutputTokens: 1},
			schedule.Report{Value: -1}},
		"whole number": {"usage.completion_tokens > 5.0 ? 2 : 1", "", messages.Usage{OutputTokens: 6},
			schedule.Report{Value: 2}},
		"missing, with a default": {"has(usage.prompt_tokens) ? usage.prompt_tokens : 1.0", "",
			messages.Usage{OutputTokens: 6}, schedule.Report{Value: 1}},
		"none is a number": {"usage.completion_tokens", "", messages.Usage{}, schedule.Report{}},
		"condition does not hold": {"usage.prompt_tokens", both, messages.Usage{OutputTokens: 6},
			schedule.Report{Result: schedule.Withheld}},
		"condition of numbers": {"1", "usage.completion_tokens >= 100.0", messages.Usage{OutputTokens: 99},
			schedule.Report{Result: schedule.Withheld}},
		"missing": {"usage.prompt_tokens", "", messages.Usage{OutputTokens: 6},
			schedule.Report{Result: schedule.Failed}},
		"condition fails": {"1", "usage.prompt_tokens > 1.0", messages.Usage{OutputTokens: 6},
			schedule.Report{Result: schedule.Failed}},
		"infinite": {"usage.prompt_tokens / usage.completion_tokens", "", messages.Usage{PromptTokens: 6},
			schedule.Report{Result: schedule.Failed}},
	} {
		t.Run(name, func(t *testing.T) {
			r := reporter(c.expression, c.condition)
			if err := r.Validate(); err != nil {
				t.Fatal(err)
			}
			c.want.Namespace, c.want.Key = "envoy.lb", "n"
			if got := r.Report(&c.usage, nil); len(got) != 1 || got[0] != c.want {
				t.Errorf("%s of %+v: got %+v, want %+v", c.expression, c.usage, got, c.want)
			}
		})
	}
}

func TestAttributeReporterRefuses(t *testing.T) {
	for name, c := range map[string]struct{ expression, condition, want string }{
		"none":    {"", "", "attributes[0].expression: missing"},
		"grammar": {"usage.a +", "", `attributes[0].expression: got "usage.a +", in which column 10 has: Syntax error`},
		"another variable": {"tokens", "", `attributes[0].expression: got "tokens", in which column 1 has: undeclared ` +
			`reference to 'tokens'`},
		"text":        {"'a'", "", `attributes[0].expression: got "'a'" of type string, want double or int or uint`},
		"mixed types": {"usage.total_tokens * 2", "", "attributes[0].expression: mixes types of numbers"},
		"an object":   {"usage.prompt_tokens_details", "", "attributes[0].expression: computes a map, want a number"},
		"no bool":     {"1", "2", `attributes[0].condition: got "2" of type int, want bool`},
	} {
		t.Run(name, func(t *testing.T) {
			err := reporter(c.expression, c.condition).Validate()
			if !strings.HasPrefix(fmt.Sprint(err), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	r := reporter("1", "")
	r.Attributes[0].Key.Name = ""
	if err := r.Validate(); fmt.Sprint(err) != "attributes[0].key.name: missing" {
		t.Errorf("without a name: got %v", err)
	}
	const none = "attributes: got 0, want 1; write a plugin of this type for each"
	if r.Attributes = nil; fmt.Sprint(r.Validate()) != none {
		t.Errorf("without attributes: got %v", r.Validate())
	}
}
