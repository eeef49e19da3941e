package secrets

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-epp/signalbox/adapters/secrets/secretstest"
)

func TestSelfSignedIsForWhoeverDoesNotVerify(t *testing.T) {
	at := serve(t, Config{Protocols: []string{"h2"}}, Watch{})
	if got := shows(t, at); got != "signalbox" {
		t.Errorf("the certificate is of %q", got)
	}
	s, err := meets(at, &tls.Config{
		InsecureSkipVerify: true, NextProtos: []string{"http/1.1", "h2"}, MinVersion: tls.VersionTLS12,
	})
	if err != nil || s.NegotiatedProtocol != "h2" {
		t.Errorf("protocol %q, %v, want h2", s.NegotiatedProtocol, err)
	}
	if _, err := meets(at, &tls.Config{MinVersion: tls.VersionTLS12}); err == nil {
		t.Error("a client that verifies took it")
	}
}

// swap makes ..data a link to another folder, as Kubernetes replaces a volume of a secret.
func swap(t *testing.T, volume, version string, p secretstest.Pair) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(volume, version), 0o700); err != nil {
		t.Fatal(err)
	}
	p.Write(t, filepath.Join(volume, version))
	if err := os.Symlink(version, filepath.Join(volume, "..data_tmp")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(volume, "..data_tmp"), filepath.Join(volume, "..data")); err != nil {
		t.Fatal(err)
	}
}

func TestReplacedFilesComeIntoForce(t *testing.T) {
	for name, replace := range map[string]func(t *testing.T, folder string, p secretstest.Pair){
		"by rename": func(t *testing.T, folder string, p secretstest.Pair) { p.Write(t, folder) },
		"in place": func(t *testing.T, folder string, p secretstest.Pair) {
			for name, text := range map[string][]byte{"tls.crt": p.Crt, "tls.key": p.Key} {
				if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		},
		"by a link, as Kubernetes does": func(t *testing.T, folder string, p secretstest.Pair) {
			if _, err := os.Lstat(filepath.Join(folder, "..data")); err == nil {
				swap(t, folder, "..second", p)
				return
			}
			swap(t, folder, "..first", p)
			for _, name := range []string{"tls.crt", "tls.key"} {
				if err := os.Symlink(filepath.Join("..data", name), filepath.Join(folder, name)); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			folder, told := t.TempDir(), make(heard, 10)
			replace(t, folder, secretstest.NewPair(t, "first"))
			at := serve(t, Config{Directory: folder}, told.watch())
			if got := shows(t, at); got != "first" {
				t.Fatalf("serves the certificate of %q", got)
			}
			replace(t, folder, secretstest.NewPair(t, "second"))
			if err := told.next(t); err != nil {
				t.Errorf("told %v", err)
			}
			if got := shows(t, at); got != "second" {
				t.Errorf("serves the certificate of %q after the change", got)
			}
		})
	}
}

func TestBadFilesLeaveTheOldOnesInForce(t *testing.T) {
	first, second := secretstest.NewPair(t, "first"), secretstest.NewPair(t, "second")
	for name, c := range map[string]struct {
		spoil func(t *testing.T, folder string)
		says  string
	}{
		"key of another": {func(t *testing.T, folder string) {
			secretstest.Put(t, filepath.Join(folder, "tls.key"), second.Key)
		}, "does not match"},
		"no certificate": {func(t *testing.T, folder string) {
			secretstest.Put(t, filepath.Join(folder, "tls.crt"), []byte("hello"))
		}, "tls.crt"},
		"certificate gone": {func(_ *testing.T, folder string) {
			_ = os.Remove(filepath.Join(folder, "tls.crt"))
		}, "no such file"},
		"folder gone": {func(_ *testing.T, folder string) { _ = os.RemoveAll(folder) }, "no such file"},
		"authority spoilt": {func(t *testing.T, folder string) {
			secretstest.Put(t, folder+".ca", []byte("hello"))
		}, ".ca: no certificate"},
		"too large": {func(t *testing.T, folder string) {
			secretstest.Put(t, filepath.Join(folder, "tls.crt"), append(first.Crt, make([]byte, fileBytes)...))
		}, "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			folder, told, client := filepath.Join(t.TempDir(), "certs"), make(heard, 10),
				secretstest.NewPair(t, "client")
			if err := os.Mkdir(folder, 0o700); err != nil {
				t.Fatal(err)
			}
			first.Write(t, folder)
			secretstest.Put(t, folder+".ca", client.Crt)
			at := serve(t, Config{Directory: folder, ClientCA: folder + ".ca"}, told.watch())
			ask := func() string {
				shown := []tls.Certificate{client.Certificate(t)}
				s, err := meets(at, &tls.Config{InsecureSkipVerify: true, Certificates: shown,
					MinVersion: tls.VersionTLS12})
				if err != nil {
					t.Fatal(err)
				}
				return s.PeerCertificates[0].Subject.CommonName
			}
			c.spoil(t, folder)
			err := told.next(t)
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "PRIVATE") {
				t.Errorf("told %v, want %q", err, c.says)
			}
			if got := ask(); got != "first" {
				t.Errorf("serves the certificate of %q, want the last good one", got)
			}
			_ = os.Mkdir(folder, 0o700)
			second.Write(t, folder)
			secretstest.Put(t, folder+".ca", client.Crt) // last: nothing is well before it
			for told.next(t) != nil {                    // what is half written for longer than a look is told of too
			}
			if got := ask(); got != "second" {
				t.Errorf("serves the certificate of %q once all is well again", got)
			}
		})
	}
}

// Whoever writes one file after the other is not told off while at it; and what is bad is said once.
func TestHalfAChangeIsNeitherTakenNorToldOf(t *testing.T) {
	folder, told := t.TempDir(), make(heard, 10)
	secretstest.NewPair(t, "first").Write(t, folder)
	w := told.watch()
	w.Every = -1 // the test looks
	p, err := NewPort(Config{Directory: folder}, w)
	if err != nil {
		t.Fatal(err)
	}
	second := secretstest.NewPair(t, "second")
	secretstest.Put(t, filepath.Join(folder, "tls.crt"), second.Crt)
	p.files.Look()
	secretstest.Put(t, filepath.Join(folder, "tls.key"), second.Key)
	p.files.Look()
	if got := p.Certificate().Subject.CommonName; got != "first" || len(told) > 0 {
		t.Errorf("after one look the certificate in force is of %q, told of %d times", got, len(told))
	}
	p.files.Look()
	if err := told.next(t); err != nil {
		t.Errorf("told %v", err)
	}
	if got := p.Certificate().Subject.CommonName; got != "second" {
		t.Errorf("the certificate in force is of %q", got)
	}
	secretstest.Put(t, filepath.Join(folder, "tls.key"), secretstest.NewPair(t, "third").Key)
	for range 5 {
		p.files.Look()
	}
	if n := len(told); n != 1 || (<-told) == nil {
		t.Errorf("a bad pair was told of %d times", n)
	}
}

func TestOnlyAgreedVersionsAndSuites(t *testing.T) {
	folder := t.TempDir()
	secretstest.NewPair(t, "a").Write(t, folder)
	const one, other = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
	chosen, err := ParseSuites([]string{one})
	if err != nil {
		t.Fatal(err)
	}
	others, err := ParseSuites([]string{other})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		server Parameters
		max    uint16
		client []uint16
		met    bool
	}{
		"1.3 by default":         {Parameters{}, tls.VersionTLS13, nil, true},
		"1.2 by default":         {Parameters{}, tls.VersionTLS12, nil, true},
		"1.1 never":              {Parameters{MinVersion: tls.VersionTLS11}, tls.VersionTLS11, nil, false},
		"1.3 is enough":          {Parameters{MinVersion: tls.VersionTLS13}, tls.VersionTLS13, nil, true},
		"1.2 is too old":         {Parameters{MinVersion: tls.VersionTLS13}, tls.VersionTLS12, nil, false},
		"the suite chosen":       {Parameters{Suites: chosen}, tls.VersionTLS12, chosen, true},
		"another than the suite": {Parameters{Suites: chosen}, tls.VersionTLS12, others, false},
		"what HTTP/2 forbids": {
			Parameters{}, tls.VersionTLS12, []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA}, false,
		},
		"1.3 whatever the suite of 1.2": {Parameters{Suites: chosen}, tls.VersionTLS13, others, true},
	} {
		t.Run(name, func(t *testing.T) {
			at := serve(t, Config{Directory: folder, Parameters: c.server}, Watch{})
			s, err := meets(at, &tls.Config{
				InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: c.max, CipherSuites: c.client,
			})
			if (err == nil) != c.met {
				t.Fatalf("met %v, %v", err == nil, err)
			}
			if err == nil && s.Version != c.max {
				t.Errorf("version %s", tls.VersionName(s.Version))
			}
		})
	}
}

func TestOnlyClientsOfTheAuthorityAreServed(t *testing.T) {
	folder, ca, told := t.TempDir(), filepath.Join(t.TempDir(), "ca.crt"), make(heard, 10)
	own, client := secretstest.NewPair(t, "own"), secretstest.NewPair(t, "client")
	stranger := secretstest.NewPair(t, "stranger")
	own.Write(t, folder)
	secretstest.Put(t, ca, client.Crt)
	at := serve(t, Config{Directory: folder, ClientCA: ca}, told.watch())
	roots, tickets := own.Roots(), tls.NewLRUClientSessionCache(8)
	served := func(shown ...tls.Certificate) bool {
		_, err := meets(at, &tls.Config{
			RootCAs: roots, Certificates: shown, ClientSessionCache: tickets, ServerName: "127.0.0.1",
			MinVersion: tls.VersionTLS12,
		})
		return err == nil
	}
	if !served(client.Certificate(t)) || served(stranger.Certificate(t)) || served() {
		t.Error("want the authority's client served, and neither a stranger nor one without a certificate")
	}
	secretstest.Put(t, ca, stranger.Crt)
	if err := told.next(t); err != nil {
		t.Fatal(err)
	}
	if served(client.Certificate(t)) || !served(stranger.Certificate(t)) {
		t.Error("the authority that took the place of the first is not the one that counts")
	}
}

func TestFilesThatAreBadAtTheStart(t *testing.T) {
	folder := t.TempDir()
	_, err := NewPort(Config{Directory: folder}, Watch{})
	if err == nil || !strings.Contains(err.Error(), "tls.crt") || !strings.Contains(err.Error(), "tls.key") {
		t.Errorf("a folder without a pair gives %v, want both files named", err)
	}
	secretstest.NewPair(t, "a").Write(t, folder)
	if _, err := NewPort(Config{Directory: folder, ClientCA: filepath.Join(folder, "tls.key")}, Watch{}); err == nil {
		t.Error("a key is taken for an authority")
	}
	_, err = NewPort(Config{Directory: folder, ClientCA: folder}, Watch{})
	if err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a folder as authority gives %v", err)
	}
}

func TestNamesOfVersionsAndSuites(t *testing.T) {
	for name, want := range map[string]uint16{"": 0, "VersionTLS12": tls.VersionTLS12,
		"VersionTLS13": tls.VersionTLS13} {
		if got, err := ParseVersion(name); got != want || err != nil {
			t.Errorf("%q is %x, %v", name, got, err)
		}
	}
	for _, name := range []string{"VersionTLS10", "VersionTLS11", "1.2", "versiontls12"} {
		if _, err := ParseVersion(name); err == nil || !strings.Contains(err.Error(), "VersionTLS12") {
			t.Errorf("%q gives %v", name, err)
		}
	}
	for name, says := range map[string]string{"TLS_RSA_WITH_RC4_128_SHA": "not safe", "AES": "want names like"} {
		if _, err := ParseSuites([]string{name}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q gives %v, want %q", name, err, says)
		}
	}
}

func TestWithoutAWatchNothingChanges(t *testing.T) {
	folder := t.TempDir()
	secretstest.NewPair(t, "first").Write(t, folder)
	at := serve(t, Config{Directory: folder}, Watch{Every: -time.Second})
	secretstest.NewPair(t, "second").Write(t, folder)
	if got := shows(t, at); got != "first" {
		t.Errorf("serves the certificate of %q", got)
	}
}

// doubts are what a port says of dates, "" for nothing any more.
type doubts []string

func (d *doubts) watch(every time.Duration) Watch {
	return Watch{Every: every, Validity: func(err error) {
		if err == nil {
			*d = append(*d, "")
			return
		}
		*d = append(*d, err.Error())
	}}
}

// What is wrong with dates is said at the start, and of the files that replace those; the certificate is in force all
// the same.
func TestCertificateOutsideItsDatesIsToldOf(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Second)
	good, past := secretstest.NewPair(t, "good"), secretstest.NewPairFrom(t, "past", now.Add(-3*time.Hour))
	future := secretstest.NewPairFrom(t, "future", now.Add(time.Hour))
	folder, ca := t.TempDir(), filepath.Join(t.TempDir(), "ca.crt")
	crt := filepath.Join(folder, "tls.crt")
	past.Write(t, folder)
	secretstest.Put(t, ca, good.Crt)
	var told doubts
	flags := Flags{"--cert-path", "--client-ca-file"}
	p, err := NewPort(Config{Directory: folder, ClientCA: ca, Flags: flags}, told.watch(-1))
	if err != nil {
		t.Fatal(err)
	}
	replace := func(own secretstest.Pair, authorities ...secretstest.Pair) {
		own.Write(t, folder)
		var bundle []byte
		for _, a := range authorities {
			bundle = append(bundle, a.Crt...)
		}
		secretstest.Put(t, ca, bundle)
		p.files.Look()
		p.files.Look()
		p.files.Look() // says nothing again
	}
	expired := func(flag, path, name string) string {
		at := now.Add(-time.Hour).Format(time.RFC3339)
		return flag + ": " + path + `: the certificate of "CN=` + name + `" expired at ` + at
	}
	early := "--cert-path: " + crt + `: the certificate of "CN=future" is not valid before ` +
		now.Add(time.Hour).Format(time.RFC3339)
	want := doubts{expired("--cert-path", crt, "past")}
	for i, step := range []struct {
		own         secretstest.Pair
		authorities []secretstest.Pair
		says        string
	}{
		{good, []secretstest.Pair{good}, ""},
		{future, []secretstest.Pair{good}, early},
		{good, []secretstest.Pair{past}, expired("--client-ca-file", ca, "past")},
		{good, []secretstest.Pair{past, good}, ""}, // one that is valid is enough
	} {
		replace(step.own, step.authorities...)
		want = append(want, step.says)
		if !slices.Equal(told, want) {
			t.Fatalf("step %d: told\n%s\nwant\n%s", i, strings.Join(told, "\n"), strings.Join(want, "\n"))
		}
	}
	if got := p.Certificate().Subject.CommonName; got != "good" {
		t.Errorf("in force is the certificate of %q", got)
	}
}

// A certificate that expires while it is in force is told of then.
func TestCertificateThatExpiresIsToldOf(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		secretstest.NewPair(t, "short").Write(t, folder)
		told := make(chan error, 10)
		p, err := NewPort(Config{Directory: folder},
			Watch{Every: time.Second, Validity: func(err error) { told <- err }})
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(59 * time.Minute) // of the bubble's clock
		if len(told) != 0 {
			t.Errorf("told of before: %v", <-told)
		}
		<-time.After(2 * time.Minute)
		p.Close()
		if len(told) != 1 {
			t.Fatalf("told %d times that it expired, want once", len(told))
		}
		if err := <-told; !strings.Contains(err.Error(), `"CN=short" expired at`) {
			t.Errorf("told of %v, want that it expired", err)
		}
	})
}

// The problem of a file begins with the flag that names it.
func TestProblemsNameTheFlagAtFault(t *testing.T) {
	good, other, empty := secretstest.NewPair(t, "good"), secretstest.NewPair(t, "other"), t.TempDir()
	folder, mixed, ca := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "ca.crt")
	good.Write(t, folder)
	good.Write(t, mixed)
	secretstest.Put(t, filepath.Join(mixed, "tls.key"), other.Key)
	secretstest.Put(t, ca, []byte("no PEM\n"))
	cut := filepath.Join(t.TempDir(), "cut.crt")
	secretstest.Put(t, cut, good.Crt[:100])
	for name, c := range map[string]struct {
		directory, ca string
		want          []string
	}{
		"no files": {empty, "", []string{"--d: stat " + empty + "/tls.crt", "--d: stat " + empty +
			"/tls.key"}},
		"key of another":       {mixed, "", []string{"--d: tls.crt and tls.key in " + mixed}},
		"no authority":         {folder, ca, []string{"--c: " + ca + ": no certificate in it"}},
		"an authority cut off": {folder, cut, []string{"--c: " + cut + ": line 1"}},
		"no file of authority": {folder, empty + "/ca", []string{"--c: stat " + empty + "/ca"}},
		"both":                 {empty, empty + "/ca", []string{"--d: stat", "--d: stat", "--c: stat"}},
		"self-signed, no file": {"", empty + "/ca", []string{"--c: stat"}},
	} {
		_, err := NewPort(Config{Directory: c.directory, ClientCA: c.ca, Flags: Flags{"--d", "--c"}}, Watch{})
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		lines := strings.Split(err.Error(), "\n")
		if !slices.EqualFunc(lines, c.want, strings.HasPrefix) {
			t.Errorf("%s: got\n%v\nwant\n%s", name, err, strings.Join(c.want, "\n"))
		}
	}
	if _, err := NewTokens(empty+"/tokens", "--t", Watch{}); err == nil ||
		!strings.HasPrefix(err.Error(), "--t: stat ") {
		t.Errorf("tokens: %v, want --t: stat", err)
	}
}
