package batch

// vocabulary is how many different tokens answers are made of.
const vocabulary = 2048

// Tokens turns text into tokens and makes the text of answers.
//
// A token is a piece of text of fixed length and its number a hash of the piece, so that an answer sent back in the
// next turn of a chat has the tokens it was made of, and its KV blocks are found again.
type Tokens struct {
	size  int
	words [vocabulary]string
	ids   [vocabulary]uint32
	byID  map[uint32]string
}

// NewTokens returns a tokenizer of bytesPerToken bytes a token, 1 or more.
func NewTokens(bytesPerToken int) *Tokens {
	const consonants, vowels = "bcdfghjklmnprstvwz", "aeiou"
	t := &Tokens{size: max(bytesPerToken, 1), byID: make(map[uint32]string, vocabulary)}
	for i := range t.words {
		word := make([]byte, t.size)
		h := mix(uint64(i) + 1)
		for j := range word {
			switch letters := h >> (8 * (j % 8)); {
			case j == 0 && t.size > 1:
				word[j] = ' '
			case j%2 == 1:
				word[j] = consonants[letters%uint64(len(consonants))]
			default:
				word[j] = vowels[letters%uint64(len(vowels))]
			}
		}
		t.words[i] = string(word)
		t.ids[i] = tokenID(t.words[i])
		t.byID[t.ids[i]] = t.words[i]
	}
	return t
}

// Encode appends the tokens of text to dst. The last one may stand for fewer bytes than the others.
func (t *Tokens) Encode(dst []uint32, text string) []uint32 {
	for len(text) > 0 {
		n := min(t.size, len(text))
		dst = append(dst, tokenID(text[:n]))
		text = text[n:]
	}
	return dst
}

// Special appends one token that stands for the whole of name.
func (t *Tokens) Special(dst []uint32, name string) []uint32 { return append(dst, tokenID(name)) }

// Word is the text of token i, from 0, of the answer with this key.
func (t *Tokens) Word(key uint64, i int) string { return t.words[pick(key, i)] }

// Decode returns the text of a token of answers, and U+FFFD for any other one, as of a hash no text can be had.
func (t *Tokens) Decode(id uint32) string {
	if word, ok := t.byID[id]; ok {
		return word
	}
	return "\ufffd"
}

func (t *Tokens) wordID(key uint64, i int) uint32 { return t.ids[pick(key, i)] }

func pick(key uint64, i int) uint64 { return mix(key+uint64(i)) % vocabulary }

// tokenID is FNV-1a.
func tokenID(piece string) uint32 {
	h := uint32(2166136261)
	for i := range len(piece) {
		h = (h ^ uint32(piece[i])) * 16777619
	}
	return h
}

// mix spreads the bits of x over the result; it is the last step of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// chain continues the hash h over tokens; equal results mean equal tokens from the first on.
func chain(h uint64, tokens []uint32) uint64 {
	for _, t := range tokens {
		h = (h ^ uint64(t)) * 0x9fb21c651e98df25
		h ^= h >> 29
	}
	return mix(h)
}

// hashText starts a chain.
func hashText(text string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return mix(h)
}
