package filters

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// LabelSelector keeps the servers whose labels match a Kubernetes label selector: all of matchLabels and all of
// matchExpressions. Without either it keeps every server.
type LabelSelector struct {
	// MatchLabels are labels that a server must have, with these values.
	MatchLabels map[string]string `json:"matchLabels"`
	// MatchExpressions are conditions that a server must meet.
	MatchExpressions []Requirement `json:"matchExpressions"`
}

// Requirement is one condition on one label.
type Requirement struct {
	// Key is the key of the label, such as app or example.com/app; required.
	Key string `json:"key"`
	// Operator says what is asked of the label: In, NotIn, Exists or DoesNotExist.
	Operator string `json:"operator"`
	// Values are those that the label must have, or not have: at least one for In and NotIn, else none.
	Values []string `json:"values"`
}

// Validate returns what is wrong with the selector.
func (f *LabelSelector) Validate() error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(f.MatchLabels)) {
		if !validKey(key) {
			errs = append(errs, fmt.Errorf("matchLabels.%s: want a label key such as app or example.com/app",
				clip.Value(key)))
		}
		if v := f.MatchLabels[key]; !validValue(v) {
			errs = append(errs, fmt.Errorf("matchLabels.%s: got %q, %s", clip.Value(key), clip.Value(v), wantValue))
		}
	}
	for i := range f.MatchExpressions {
		errs = append(errs, f.MatchExpressions[i].validate(fmt.Sprintf("matchExpressions[%d]", i))...)
	}
	return errors.Join(errs...)
}

const wantValue = "want a label value: at most 63 letters, digits, '-', '_' or '.', " +
	"beginning and ending with a letter or digit"

func (r *Requirement) validate(path string) (errs []error) {
	if !validKey(r.Key) {
		errs = append(errs, fmt.Errorf("%s.key: got %q, want a label key such as app or example.com/app", path,
			clip.Value(r.Key)))
	}
	switch r.Operator {
	case "In", "NotIn":
		if len(r.Values) == 0 {
			errs = append(errs, fmt.Errorf("%s.values: got none, want at least one for %s", path, r.Operator))
		}
	case "Exists", "DoesNotExist":
		if len(r.Values) > 0 {
			errs = append(errs, fmt.Errorf("%s.values: got %d, want none for %s", path, len(r.Values), r.Operator))
		}
	default:
		errs = append(errs, fmt.Errorf("%s.operator: got %q, want In, NotIn, Exists or DoesNotExist", path,
			clip.Value(r.Operator)))
	}
	for i, v := range r.Values {
		if !validValue(v) {
			errs = append(errs, fmt.Errorf("%s.values[%d]: got %q, %s", path, i, clip.Value(v), wantValue))
		}
	}
	return errs
}

// Filter keeps the candidates that match.
func (f *LabelSelector) Filter(in *schedule.Input, keep []bool) {
	for i := range in.Candidates().Len() {
		keep[i] = f.matches(in.Candidates().At(i))
	}
}

func (f *LabelSelector) matches(e schedule.Candidate) bool {
	for key, want := range f.MatchLabels {
		if got, ok := e.Label(key); !ok || got != want {
			return false
		}
	}
	for i := range f.MatchExpressions {
		if !f.MatchExpressions[i].met(e) {
			return false
		}
	}
	return true
}

func (r *Requirement) met(e schedule.Candidate) bool {
	got, ok := e.Label(r.Key)
	switch r.Operator {
	case "In":
		return ok && slices.Contains(r.Values, got)
	case "NotIn":
		return !ok || !slices.Contains(r.Values, got)
	case "Exists":
		return ok
	}
	return !ok // DoesNotExist
}

// validKey reports whether Kubernetes accepts a label key: an optional DNS name and a slash, then a name.
func validKey(key string) bool {
	prefix, name, found := strings.Cut(key, "/")
	if !found {
		prefix, name = "", key
	}
	return name != "" && validValue(name) && (!found || validPrefix(prefix))
}

func validPrefix(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for part := range strings.SplitSeq(s, ".") {
		if part == "" || part != strings.ToLower(part) || strings.Contains(part, "_") || !validValue(part) {
			return false
		}
	}
	return true
}

func validValue(s string) bool {
	if len(s) > 63 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		inner := c == '-' || c == '_' || c == '.'
		word := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !word && (!inner || i == 0 || i == len(s)-1) {
			return false
		}
	}
	return true
}

// clip bounds, in bytes, what an error repeats of the configuration.
