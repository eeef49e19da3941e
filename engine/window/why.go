package window

import "time"

// Why says what a window was changed by last.
type Why struct {
	Cause Cause
	Queue float64 // requests that waited at the endpoint, as it seemed
	At    time.Time
	From  int // requests of the window before; 0 = there was none
}

// Cause is what a window was changed by. The set is closed.
type Cause uint8

const (
	Begun       Cause = iota // nothing has: the window is new, or begins anew
	FirstTokens              // how soon first tokens came
	Page                     // what the metrics page says
	Refusal                  // the endpoint refused a request because it is full
	Blind                    // nothing tells whether work waits there, and so the window grows

	causes
)

var causeNames = [causes]string{
	Begun: "new", FirstTokens: "first-tokens", Page: "page", Refusal: "refusal", Blind: "blind",
}

// Causes returns every cause.
func Causes() []Cause {
	all := make([]Cause, causes)
	for i := range all {
		all[i] = Cause(i)
	}
	return all
}

// String returns the cause's name, as pages and metrics carry it.
func (c Cause) String() string {
	if c < causes {
		return causeNames[c]
	}
	return "unknown"
}
