package points

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"

	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/schedule"
	"github.com/signalbox-epp/signalbox/messages"
)

// AttributeReporter tells the proxy numbers that are computed from the tokens of a response, in the dynamic metadata
// of the answer to the end of its body. Access logs, rate limits and billing can read them there. It needs a response
// whose body is shown: in the light lane it tells nothing of the others.
//
// Expressions are of the Common Expression Language. They have one variable, usage, with the fields prompt_tokens,
// completion_tokens, total_tokens and prompt_tokens_details.cached_tokens, which all APIs have under these names. All
// numbers are doubles, so that a constant beside them is written 2.0. Prompt tokens that the response does not have are
// missing, as has(usage.prompt_tokens) says. A response without usage has no attributes.
type AttributeReporter struct {
	// Attributes has the number; exactly one.
	Attributes []ReportedAttribute `json:"attributes"`

	programs []program
}

// ReportedAttribute is a number that the proxy is told.
type ReportedAttribute struct {
	// Key says where the number goes.
	Key AttributeKey `json:"key"`
	// Expression computes the number, whose fraction is cut off; required.
	Expression string `json:"expression"`
	// Condition computes whether the proxy is told; empty = always.
	Condition string `json:"condition"`
}

// AttributeKey is a place in the proxy's dynamic metadata.
type AttributeKey struct {
	// Namespace is that of the metadata, which the proxy must let Signalbox write; empty = envoy.lb.
	Namespace string `json:"namespace"`
	// Name is the name of the number in the namespace; required.
	Name string `json:"name"`
}

// program is a compiled attribute.
type program struct {
	of         schedule.Report
	expression cel.Program
	condition  cel.Program // nil = there is none
}

// Validate compiles the expressions, and returns what is wrong with them. An expression that mixes whole numbers and
// doubles only fails when it is evaluated, so that a usage with all fields is tried.
func (r *AttributeReporter) Validate() error {
	if n := len(r.Attributes); n != 1 {
		return fmt.Errorf("attributes: got %d, want 1; write a plugin of this type for each", n)
	}
	env, err := cel.NewEnv(cel.Variable("usage", cel.MapType(cel.StringType, cel.DynType)))
	if err != nil {
		return fmt.Errorf("attributes: %w", err)
	}
	r.programs = make([]program, len(r.Attributes))
	sample := usageOf(&messages.Usage{PromptTokens: 3, CachedTokens: 1, OutputTokens: 2})
	var errs []error
	for i, a := range r.Attributes {
		at, p, before := fmt.Sprintf("attributes[%d].", i), &r.programs[i], len(errs)
		p.of = schedule.Report{Namespace: cmp.Or(a.Key.Namespace, "envoy.lb"), Key: a.Key.Name}
		if a.Key.Name == "" {
			errs = append(errs, errors.New(at+"key.name: missing"))
		}
		if a.Expression == "" {
			errs = append(errs, errors.New(at+"expression: missing"))
			continue
		}
		var wrong error
		if p.expression, wrong = compile(env, a.Expression, cel.DoubleType, cel.IntType, cel.UintType); wrong != nil {
			errs = append(errs, fmt.Errorf("%sexpression: %w", at, wrong))
		}
		if a.Condition != "" {
			if p.condition, wrong = compile(env, a.Condition, cel.BoolType); wrong != nil {
				errs = append(errs, fmt.Errorf("%scondition: %w", at, wrong))
			}
		}
		if len(errs) == before {
			if wrong = p.try(sample); wrong != nil {
				errs = append(errs, fmt.Errorf("%sexpression: %w", at, wrong))
			}
		}
	}
	return errors.Join(errs...)
}

// compile returns the program of an expression that may have one of these types.
func compile(env *cel.Env, text string, wanted ...*cel.Type) (cel.Program, error) {
	ast, issues := env.Compile(text)
	if err := issues.Err(); err != nil {
		first := issues.Errors()[0]
		return nil, fmt.Errorf("got %q, in which column %d has: %s", clip.Value(text), first.Location.Column()+1,
			clip.Value(first.Message))
	}
	names := make([]string, 0, len(wanted))
	fits := ast.OutputType().IsExactType(cel.DynType)
	for _, t := range wanted {
		fits = fits || ast.OutputType().IsExactType(t)
		names = append(names, t.String())
	}
	if !fits {
		return nil, fmt.Errorf("got %q of type %s, want %s", clip.Value(text), ast.OutputType(),
			strings.Join(names, " or "))
	}
	return env.Program(ast)
}

// try returns what is wrong with the types of a program, whatever the usage.
func (p *program) try(sample *usage) error {
	if p.condition != nil {
		if holds, _, err := p.condition.Eval(sample); err == nil && holds != types.True {
			return nil // it has to hold before the expression is evaluated
		}
	}
	value, _, err := p.expression.Eval(sample)
	if err != nil && strings.Contains(err.Error(), "no such overload") {
		return errors.New("mixes types of numbers: usage has doubles, beside which a constant is written 2.0")
	}
	if err == nil {
		if _, ok := number(value.Value()); !ok {
			return fmt.Errorf("computes a %s, want a number", value.Type().TypeName())
		}
	}
	return nil
}

// WithoutBody says what is not told.
func (r *AttributeReporter) WithoutBody() string {
	return "tells the proxy nothing of a response whose body bypasses"
}

// Report evaluates each attribute.
func (r *AttributeReporter) Report(of *messages.Usage, list []schedule.Report) []schedule.Report {
	usage := usageOf(of)
	for i := range r.programs {
		list = append(list, r.programs[i].report(usage))
	}
	return list
}

func (p *program) report(of *usage) schedule.Report {
	report := p.of
	if p.condition != nil {
		holds, _, err := p.condition.Eval(of)
		if err != nil {
			report.Result = schedule.Failed
			return report
		}
		if holds != types.True {
			report.Result = schedule.Withheld
			return report
		}
	}
	report.Result = schedule.Failed
	if value, _, err := p.expression.Eval(of); err == nil {
		if n, ok := number(value.Value()); ok {
			report.Result, report.Value = schedule.Told, math.Trunc(n)
		}
	}
	return report
}

// number returns a value as a finite number.
func number(value any) (n float64, ok bool) {
	switch v := value.(type) {
	case float64:
		n = v
	case int64:
		n = float64(v)
	case uint64:
		n = float64(v)
	default:
		return 0, false
	}
	return n, !math.IsNaN(n) && !math.IsInf(n, 0)
}

// usage is the variable that expressions have.
type usage struct{ value any }

func usageOf(u *messages.Usage) *usage {
	fields := map[string]any{
		"completion_tokens":     float64(u.OutputTokens),
		"total_tokens":          float64(u.PromptTokens + u.OutputTokens),
		"prompt_tokens_details": map[string]any{"cached_tokens": float64(u.CachedTokens)},
	}
	if u.PromptTokens > 0 {
		fields["prompt_tokens"] = float64(u.PromptTokens)
	}
	return &usage{types.DefaultTypeAdapter.NativeToValue(fields)}
}

// ResolveName returns the variable.
func (u *usage) ResolveName(name string) (any, bool) { return u.value, name == "usage" }

// Parent returns nil: there are no variables beside usage.
func (u *usage) Parent() cel.Activation { return nil }
