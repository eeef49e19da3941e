package strictyaml

import "testing"

func TestQuantity(t *testing.T) {
	for in, want := range map[string]Quantity{
		"0": 0, "5000": 5000, "1G": 1e9, "1Gi": 1 << 30, "1.5k": 1500, "1e3": 1000, "2E": 2e18, "1m": 1, "-3k": -3000,
		"9223372036854775807": 1<<63 - 1,
	} {
		if got, err := parseQuantity(in); err != nil || got != want {
			t.Errorf("parseQuantity(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "G", "1_000", "0x10", "inf", "nan", "1e40", "16E", "1 G", "1KB"} {
		if got, err := parseQuantity(in); err == nil {
			t.Errorf("parseQuantity(%q) = %d, want an error", in, got)
		}
	}
}
