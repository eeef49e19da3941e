package secrets

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/adapters/secrets/secretstest"
)

func TestOnlyTokensOfTheFileAreAccepted(t *testing.T) {
	path, told := filepath.Join(t.TempDir(), "tokens"), make(heard, 10)
	secretstest.Put(t, path, []byte("first-token\r\n\n second.token== \n"))
	tokens, err := NewTokens(path, "", told.watch())
	if err != nil {
		t.Fatal(err)
	}
	defer tokens.Close()
	for header, want := range map[string]bool{
		"Bearer first-token": true, "bearer second.token==": true, "Bearer  first-token ": true,
		"": false, "Bearer": false, "Bearer ": false, "first-token": false, "Basic first-token": false,
		"Bearer first-toke": false, "Bearer first-tokens": false, "Bearer First-Token": false,
		"Bearer first-token second.token==": false,
	} {
		if got := tokens.Accept(header); got != want {
			t.Errorf("%q: accepted %t, want %t", header, got, want)
		}
	}
	secretstest.Put(t, path, []byte("third"))
	if err := told.next(t); err != nil {
		t.Fatal(err)
	}
	if tokens.Accept("Bearer first-token") || !tokens.Accept("Bearer third") {
		t.Error("the file that took the place of the first is not the one that counts")
	}
	secretstest.Put(t, path, []byte("\n"))
	if err := told.next(t); err == nil || !tokens.Accept("Bearer third") {
		t.Errorf("an empty file was taken, or took the old token's place: %v", err)
	}
}

func TestTokensThatNoHeaderCarries(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	for text, says := range map[string]string{
		"": "no token", " \n": "no token", "a\nsec ret": "line 2", "sécret": "line 1", "=": "line 1",
	} {
		secretstest.Put(t, path, []byte(text))
		_, err := NewTokens(path, "", Watch{})
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "ret") {
			t.Errorf("%q gives %v, want %q and no secret", text, err, says)
		}
	}
}
