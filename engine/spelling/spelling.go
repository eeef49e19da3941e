// Package spelling finds the name that was probably meant by one that is not known.
// It never decides what names there are.
package spelling

// Nearest is the known name that differs from name in the fewest letters, or "" if none is near.
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

// distance counts the letters to insert, remove or replace.
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
