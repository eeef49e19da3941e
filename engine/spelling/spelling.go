// Package spelling finds the known name that was probably meant by a misspelled one. It never decides which names there
// are.
package spelling

// Nearest returns the known name with the fewest different letters; "" = none is near.
func Nearest(name string, known []string) string {
	if len(name) > 80 {
		return ""
	}
	found, least := "", max(2, len(name)/3)+1
	for _, k := range known {
		if d := distance(name, k); d < least {
			found, least = k, d
		}
	}
	return found
}

// distance returns how many letters have to be inserted, removed or replaced to turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
