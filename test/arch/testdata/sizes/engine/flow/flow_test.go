package flow

// table has cases, which do not count.
func table() {
	for _, c := range []struct {
		in, out int
	}{
		{1, 2},
		{2, 3},
		{3, 4},
		{4, 5},
		{5, 6},
		{6, 7},
	} {
		_ = c
	}
}
