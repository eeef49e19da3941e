package secrets

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/adapters/secrets/secretstest"
)

// write puts text into a file in place, as whoever is in the midst of it.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Half of a token is a token: what is seen once only is not taken.
func TestHalfATokenIsNotTaken(t *testing.T) {
	path, told := filepath.Join(t.TempDir(), "tokens"), make(heard, 10)
	write(t, path, "old-secret\n")
	w := told.watch()
	w.Every = -1 // the test looks
	tokens, err := NewTokens(path, "", w)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		text, good string
		told       int
	}{
		{"new", "old-secret", 0}, {"new-sec", "old-secret", 0},
		{"new-secret\n", "old-secret", 0}, {"new-secret\n", "new-secret", 1}, {"new-secret\n", "new-secret", 1},
		{"", "new-secret", 1}, {"new-secret\n", "new-secret", 1}, {"", "new-secret", 1}, {"", "new-secret", 2},
	} {
		write(t, path, step.text)
		tokens.file.Look()
		for _, token := range []string{"new", "new-sec", "old-secret", "new-secret"} {
			if got := tokens.Accept("Bearer " + token); got != (token == step.good) {
				t.Errorf("after %q: %q accepted %t", step.text, token, got)
			}
		}
		if len(told) != step.told {
			t.Errorf("after %q: told of %d times, want %d", step.text, len(told), step.told)
		}
	}
}

// Of a bundle that is cut the whole blocks are good PEM: every cut but the one between two blocks is refused.
func TestCutPEMIsRefused(t *testing.T) {
	one, two := secretstest.NewPair(t, "one"), secretstest.NewPair(t, "two")
	both := bytes.Join([][]byte{one.Crt, two.Crt}, nil)
	ends := len(bytes.TrimSpace(both)) // without the last line's end it is whole
	for n := len(one.Crt) + 1; n < len(both); n++ {
		if err := checkPEM(both[:n]); (err == nil) != (n >= ends) {
			t.Errorf("%d of %d bytes, the first block has %d: %v", n, len(both), len(one.Crt), err)
		}
	}
	folder, ca := t.TempDir(), filepath.Join(t.TempDir(), "ca.crt")
	spoilt := func(b []byte) []byte { return bytes.Replace(b, []byte("END"), []byte("EMD"), 1) }
	with := func(b []byte, text string) []byte { return append(bytes.Clone(b), text...) }
	for says, c := range map[string]struct{ crt, key, ca []byte }{
		"ca.crt: line 12: the PEM block":         {one.Crt, one.Key, both[:len(one.Crt)+100]},
		"tls.crt: line 12: the PEM block":        {both[:len(both)-10], one.Key, both},
		"tls.key: line 1: the PEM block":         {both, one.Key[:len(one.Key)-10], both},
		"ca.crt: line 1: the PEM block":          {both, one.Key, spoilt(both)},
		"ca.crt: line 3: the PEM block":          {both, one.Key, append([]byte("# two\r\n\r\n"), spoilt(both)...)},
		"tls.crt: line 12: want empty lines":     {with(one.Crt, "-----BEG"), one.Key, both},
		"tls.key: line 7: want empty lines":      {both, with(one.Key, "\nMIGHAgEA\n"), both},
		"tls.crt: line 1: the PEM block that be": {spoilt(one.Crt), one.Key[:50], both},
	} {
		secretstest.Put(t, filepath.Join(folder, "tls.crt"), c.crt)
		secretstest.Put(t, filepath.Join(folder, "tls.key"), c.key)
		secretstest.Put(t, ca, c.ca)
		_, err := NewPort(Config{Directory: folder, ClientCA: ca}, Watch{Every: -1})
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "MIGH") {
			t.Errorf("got %v, want %q and nothing of what it holds", err, says)
		}
		if bytes.Equal(c.key, one.Key[:50]) && !strings.Contains(err.Error(), "tls.key: line 1") {
			t.Errorf("got %v, want the key named too", err)
		}
	}
}

// What people write around blocks is no sign of a cut.
func TestTextAroundPEMIsLeftAlone(t *testing.T) {
	crt := string(secretstest.NewPair(t, "one").Crt)
	for name, text := range map[string]string{
		"one": crt, "two": crt + crt, "descriptions": "subject=one\n" + crt + "\nBag Attributes\n    two\n" + crt,
		"comments and space behind": crt + "\n  \n# the end\r\n\t# of it", "no last line end": strings.TrimSpace(crt),
		"line ends of Windows": strings.ReplaceAll(crt+crt, "\n", "\r\n"),
		"a block in a comment": "# -----BEGIN CERTIFICATE-----\n" + crt,
		"nothing":              "",
		"no block":             "hello",
	} {
		if err := checkPEM([]byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
