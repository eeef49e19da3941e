package secrets

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"regexp"
	"strings"

	"github.com/signalbox-epp/signalbox/adapters/files"
)

// Tokens holds bearer tokens from a file that may be replaced at any time. The file has one token a line, so that a
// token and its successor can both be valid for a while.
type Tokens struct {
	file *files.Follower[[][sha256.Size]byte]
}

// NewTokens reads the file, which flag names in every problem of it. A file without a token is an error.
func NewTokens(path, flag string, w Watch) (*Tokens, error) {
	file := source{path, flag}
	f, err := follow([]source{file}, func(texts [][]byte) ([][sha256.Size]byte, error) {
		sums, err := parseTokens(string(texts[0]))
		if err != nil {
			return nil, file.fault(fmt.Errorf("%s: %w", path, err))
		}
		return sums, nil
	}, nil, w)
	if err != nil {
		return nil, err
	}
	f.Start()
	return &Tokens{f}, nil
}

// Close ends the watch over the file. What was read last stays in force.
func (t *Tokens) Close() { t.file.Close() }

// What a header can carry: RFC 6750, 2.1.
var tokenForm = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`)

func parseTokens(text string) ([][sha256.Size]byte, error) {
	var sums [][sha256.Size]byte
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if !tokenForm.MatchString(line) {
			// without the line: it may be a secret
			return nil, fmt.Errorf("line %d: want letters, digits and -._~+/ only", i+1)
		}
		sums = append(sums, sha256.Sum256([]byte(line)))
	}
	if len(sums) == 0 {
		return nil, fmt.Errorf("no token in it")
	}
	return sums, nil
}

// Accept reports whether an Authorization header carries one of the tokens. The time that it takes does not depend on
// the tokens.
func (t *Tokens) Accept(authorization string) bool {
	scheme, token, _ := strings.Cut(authorization, " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
	found := 0
	for _, want := range t.file.Value() {
		found |= subtle.ConstantTimeCompare(sum[:], want[:])
	}
	return found == 1 && strings.EqualFold(scheme, "Bearer")
}
