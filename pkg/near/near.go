// Package near finds the word that somebody may have meant. It knows no words of its own.
package near

// Word is the known word that is nearest to a misspelt one, at most limit letters away; "" when there is none.
func Word(word string, known []string, limit int) (nearest string) {
	for _, k := range known {
		if d := distance(word, k); d <= limit {
			nearest, limit = k, d-1
		}
	}
	return nearest
}

// distance is how many letters must be put in, taken out or changed to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
