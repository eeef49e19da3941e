package spelling

import (
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	known := []string{"endpoint", "limit", "model", "n", "status"}
	for name, want := range map[string]string{
		"modell": "model", "models": "model", "stat": "status", "limits": "limit", "Model": "model",
		"end-point":    "endpoint",
		"format-of-it": "", "": "n", strings.Repeat("model", 20): "",
	} {
		if got := Nearest(name, known); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", name, got, want)
		}
	}
}
