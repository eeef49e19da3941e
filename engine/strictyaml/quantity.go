package strictyaml

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// Quantity is a number as Kubernetes writes it: 5000, "512Mi", 1G, 1e9. Fractions are rounded up.
type Quantity int64

var quantityUnits = []struct {
	suffix string
	factor float64
}{
	{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40}, {"Pi", 1 << 50}, {"Ei", 1 << 60},
	{"n", 1e-9}, {"u", 1e-6}, {"m", 1e-3}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"P", 1e15}, {"E", 1e18},
}

var errNoQuantity = errors.New("not a Quantity")

func parseQuantity(s string) (Quantity, error) {
	factor := 1.0
	for _, u := range quantityUnits {
		if number, ok := strings.CutSuffix(s, u.suffix); ok {
			s, factor = number, u.factor
			break
		}
	}
	if strings.Trim(s, "+-.0123456789eE") != "" { // ParseFloat takes hexadecimal numbers, underscores, inf and nan too
		return 0, errNoQuantity
	}
	if factor == 1 {
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return Quantity(n), nil
		}
	}
	n, err := strconv.ParseFloat(s, 64)
	if n = math.Ceil(n * factor); err != nil || math.Abs(n) >= 1<<63 {
		return 0, errNoQuantity
	}
	return Quantity(n), nil
}
