package records

import "math"

// fit is a line through the answers of one form: bytes = constant + perToken × tokens. It is fitted by least squares
// with the weight 1/tokens, because each token adds noise as well as bytes. With these weights the residuals of all
// answers add up to 0, so that a sum of estimates is right even if single ones are not. The weight of older answers
// decays.
type fit struct {
	answers float64 // sum of weights × tokens, which is 1 for each answer: the number of answers, at most memory
	inverse float64 // sum of 1/tokens
	total   float64 // sum of tokens
	rate    float64 // sum of bytes/tokens
	bytes   float64 // sum of bytes
	squares float64 // sum of bytes²/tokens
	off     float64 // mean relative error of the estimates that try made
	tried   float64 // answers in off, at most memory
	own     float64 // mean bytes of the event that carries usage alone
	owned   float64 // answers in own, at most memory
	odd     uint8   // outliers in a row
	at      uint64  // Estimates.clock when it last learned
}

// line is the line that solve finds.
type line struct {
	constant float64 // bytes of an answer besides those of its tokens
	perToken float64 // bytes of a token; > 0
	noise    float64 // standard deviation, in bytes, of an answer of one token
	det      float64 // determinant of the normal equations; > 0
}

// leastSpread is the least relative variance of the tokens from which a slope is taken: 1 % of standard deviation.
const leastSpread = 1e-4

// solve returns the line; false = the answers are too few, or too much alike in tokens, for one.
func (f *fit) solve() (line, bool) {
	det := f.inverse*f.total - f.answers*f.answers
	if f.answers < fewest-0.5 || det < leastSpread*f.answers*f.answers {
		return line{}, false
	}
	l := line{
		constant: (f.rate*f.total - f.answers*f.bytes) / det,
		perToken: (f.inverse*f.bytes - f.answers*f.rate) / det,
		det:      det,
	}
	if l.perToken <= 0 {
		return line{}, false
	}
	rest := max(f.squares-l.constant*f.rate-l.perToken*f.bytes, 0) / (f.answers - 2)
	l.noise = math.Sqrt(rest)
	return l, true
}

// learn adds an answer. An outlier counts as if it were just within the bounds, so that a single one changes little.
func (f *fit) learn(bytes, tokens float64) {
	if l, ok := f.solve(); ok {
		f.try(&l, bytes, tokens)
		expected := l.constant + l.perToken*tokens
		bound := farOff * max(l.noise, leastNoise*l.perToken) * math.Sqrt(tokens)
		if within := min(max(bytes, expected-bound), expected+bound); within == bytes {
			f.odd = 0
		} else if f.odd++; f.odd < farOffInARow {
			bytes = within
		} else {
			*f = fit{own: f.own, owned: f.owned}
		}
	}
	const keep = 1 - 1.0/memory
	f.answers = f.answers*keep + 1
	f.inverse = f.inverse*keep + 1/tokens
	f.total = f.total*keep + tokens
	f.rate = f.rate*keep + bytes/tokens
	f.bytes = f.bytes*keep + bytes
	f.squares = f.squares*keep + bytes*bytes/tokens
}

// try notes the error of the line's estimate for an answer whose tokens are known. The relative error of one answer
// counts as 1 at most.
func (f *fit) try(l *line, bytes, tokens float64) {
	estimate := max((bytes-l.constant)/l.perToken, 1)
	f.tried = min(f.tried+1, memory)
	f.off += (min(math.Abs(estimate-tokens)/tokens, 1) - f.off) / f.tried
}

// noteOwn adds the bytes of an event that carries usage alone.
func (f *fit) noteOwn(bytes float64) {
	f.owned = min(f.owned+1, memory)
	f.own += (bytes - f.own) / f.owned
}

// tokens returns an estimate of the tokens of an answer of so many bytes; false = not enough is known for one.
func (f *fit) tokens(bytes float64) (float64, bool) {
	l, ok := f.solve()
	if !ok {
		return f.usual(bytes)
	}
	if f.tried >= fewest && f.off > worstOff {
		return 0, false
	}
	tokens := (bytes - l.constant) / l.perToken
	at := max(tokens, 1)
	// variance is that of the line at this number of tokens, for a noise of 1.
	variance := (f.total - 2*f.answers*at + f.inverse*at*at) / l.det
	wrong := max(l.noise, leastNoise*l.perToken) * math.Sqrt(max(variance, 0)) / l.perToken
	if wrong > max(worstShare*at, worstTokens) {
		return f.usual(bytes)
	}
	return tokens, true
}

// usual returns the mean number of tokens, if all answers had about the same, for an answer about as long as those.
func (f *fit) usual(bytes float64) (float64, bool) {
	spread := f.inverse*f.total/(f.answers*f.answers) - 1
	if f.answers < fewest-0.5 || spread > worstShare*worstShare {
		return 0, false
	}
	mean := f.rate / f.inverse
	deviation := math.Sqrt(max(f.squares/f.inverse-mean*mean, 0))
	if math.Abs(bytes-mean) > 2*deviation+leastDeviation {
		return 0, false
	}
	return f.answers / f.inverse, true
}

// leastDeviation is by how many bytes answers may differ that are alike, because numbers and ids in them have more or
// fewer digits.
const leastDeviation = 4
