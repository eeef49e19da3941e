package records

import "math"

// fit is a line through the answers of one form: bytes = constant + perToken × tokens, by least squares with the weight
// 1/tokens, for a token adds noise as it adds bytes. With these weights the residuals of all answers add up to nothing,
// so that a sum of estimates is right even where single ones are not. Older answers weigh less and less.
type fit struct {
	answers float64 // sum of weights × tokens, which are 1 each: how many answers count, at most memory
	inverse float64 // sum of 1/tokens
	total   float64 // sum of tokens
	rate    float64 // sum of bytes/tokens
	bytes   float64 // sum of bytes
	squares float64 // sum of bytes²/tokens
	off     float64 // mean of |estimate - truth| / truth, of answers that were estimated before they taught
	tried   float64 // answers in that mean, at most memory
	own     float64 // mean of the bytes of the event that carries usage alone
	owned   float64 // answers in that mean, at most memory
	odd     uint8   // outliers in a row
	at      uint64  // when it learned last, in answers of all forms
}

// line is the solution: what an answer takes besides its tokens, what a token takes,
// and the standard deviation of an answer of one token.
type line struct{ constant, perToken, noise, det float64 }

// leastSpread is the least relative variance of the tokens with which a slope means anything;
// 1 % of standard deviation.
const leastSpread = 1e-4

// solve gives the line; false if the answers are too few, or too much alike in tokens, for one.
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

// learn takes an answer. An outlier counts as if it were just within the bounds, so that a single one moves little.
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

// try notes how wrong the line would have been. One answer counts as wrong by its whole length at most.
func (f *fit) try(l *line, bytes, tokens float64) {
	estimate := max((bytes-l.constant)/l.perToken, 1)
	f.tried = min(f.tried+1, memory)
	f.off += (min(math.Abs(estimate-tokens)/tokens, 1) - f.off) / f.tried
}

func (f *fit) noteOwn(bytes float64) {
	f.owned = min(f.owned+1, memory)
	f.own += (bytes - f.own) / f.owned
}

// tokens estimates how many tokens an answer of so many bytes has; false = not enough is known for that.
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
	variance := (f.total - 2*f.answers*at + f.inverse*at*at) / l.det // of the line at that point, for a noise of 1
	wrong := max(l.noise, leastNoise*l.perToken) * math.Sqrt(max(variance, 0)) / l.perToken
	if wrong > max(worstShare*at, worstTokens) {
		return f.usual(bytes)
	}
	return tokens, true
}

// usual is the number of tokens that all answers had, if they all had about the same,
// for an answer that is as long as those.
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

// leastDeviation is by how many bytes answers differ that are alike: numbers and ids in them have more or fewer digits.
const leastDeviation = 4
