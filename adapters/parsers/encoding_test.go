package parsers_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/signalbox-epp/signalbox/adapters/parsers"
	"github.com/signalbox-epp/signalbox/messages"
)

// encoders are the codings as a client applies them.
var encoders = map[string]func(io.Writer) io.WriteCloser{
	"gzip": func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
	"br":   func(w io.Writer) io.WriteCloser { return brotli.NewWriterLevel(w, brotli.BestSpeed) },
	"zstd": func(w io.Writer) io.WriteCloser {
		z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
			zstd.WithWindowSize(128<<10))
		if err != nil {
			panic(err)
		}
		return z
	},
}

// encoded applies codings one after the other.
func encoded(body []byte, codings ...string) []byte {
	for _, c := range codings {
		var b bytes.Buffer
		w := encoders[c](&b)
		if _, err := w.Write(body); err != nil {
			panic(err)
		}
		if err := w.Close(); err != nil {
			panic(err)
		}
		body = b.Bytes()
	}
	return body
}

// facts is Request, comparable.
func facts(r messages.Request) messages.Request {
	r.Blocks = messages.ListOf(r.Blocks.Append(nil)...)
	return r
}

func TestEncodedBodies(t *testing.T) {
	chat, allow := []byte(chatBody()), cmp.AllowUnexported(messages.List[uint64]{}, messages.List[messages.Medium]{},
		messages.List[messages.Address]{}, messages.List[messages.HeaderValue]{})
	want := parse(t, chatPath, string(chat))
	cut := func(b []byte, n int) []byte { return b[:len(b)-n] }
	flip := func(b []byte, at int) []byte {
		b = slices.Clone(b)
		b[at] ^= 0x10
		return b
	}
	tests := map[string]struct {
		header string
		body   []byte
		read   bool
	}{
		"gzip":                  {"gzip", encoded(chat, "gzip"), true},
		"br":                    {"br", encoded(chat, "br"), true},
		"zstd":                  {"zstd", encoded(chat, "zstd"), true},
		"case and space":        {"\t GZip ", encoded(chat, "gzip"), true},
		"x-gzip":                {"X-Gzip", encoded(chat, "gzip"), true},
		"identity":              {"identity", chat, true},
		"identities":            {"identity,, IDENTITY,", chat, true},
		"with identity":         {"identity, zstd,identity", encoded(chat, "zstd"), true},
		"two":                   {"gzip, br", encoded(chat, "gzip", "br"), true},
		"two alike":             {"gzip,gzip", encoded(chat, "gzip", "gzip"), true},
		"four":                  {"br,zstd,gzip,br", encoded(chat, "br", "zstd", "gzip", "br"), true},
		"five":                  {"br,zstd,gzip,br,br", encoded(chat, "br", "zstd", "gzip", "br", "br"), false},
		"two, the wrong way":    {"br, gzip", encoded(chat, "gzip", "br"), false},
		"gzip of two members":   {"gzip", append(encoded(chat[:100], "gzip"), encoded(chat[100:], "gzip")...), true},
		"zstd of two frames":    {"zstd", append(encoded(chat[:100], "zstd"), encoded(chat[100:], "zstd")...), true},
		"unknown":               {"deflate", encoded(chat, "gzip"), false},
		"unknown in a list":     {"gzip, compress", encoded(chat, "gzip"), false},
		"not UTF-8":             {"\xffgzip", encoded(chat, "gzip"), false},
		"not encoded":           {"gzip", chat, false},
		"another coding":        {"br", encoded(chat, "gzip"), false},
		"gzip cut":              {"gzip", cut(encoded(chat, "gzip"), 1), false},
		"br cut":                {"br", cut(encoded(chat, "br"), 1), false},
		"zstd cut":              {"zstd", cut(encoded(chat, "zstd"), 1), false},
		"gzip, more behind":     {"gzip", append(encoded(chat, "gzip"), "more"...), false},
		"br, more behind":       {"br", append(encoded(chat, "br"), "more"...), false},
		"zstd, more behind":     {"zstd", append(encoded(chat, "zstd"), "more"...), false},
		"gzip, checksum":        {"gzip", flip(encoded(chat, "gzip"), len(encoded(chat, "gzip"))-6), false},
		"zstd, checksum":        {"zstd", flip(encoded(chat, "zstd"), len(encoded(chat, "zstd"))-2), false},
		"nothing, said encoded": {"gzip", []byte{}, false},
		"nothing, encoded":      {"gzip", encoded(nil, "gzip"), false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(tc.body)
			var got messages.Request
			if err := parser.Parse(chatPath, jsonType, tc.header, tc.body, &got); err != nil {
				t.Fatalf("error %v, want none", err)
			}
			wanted := messages.Request{}
			if tc.read {
				wanted = facts(want)
			}
			if diff := cmp.Diff(wanted, facts(got), allow); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
			if !bytes.Equal(before, tc.body) {
				t.Error("the body was written to")
			}
		})
	}
}

// What can be decoded and is no JSON is the client's fault, as it is without an encoding.
func TestEncodedBodyThatIsNoJSON(t *testing.T) {
	const want = `once decoded, body is not JSON: it ends at byte 4, want ':'`
	for coding := range encoders {
		got := messages.Request{Model: "before"}
		err := parser.Parse(chatPath, jsonType, coding, encoded([]byte(`{"a"`), coding), &got)
		if fmt.Sprint(err) != want || got.Model != "before" {
			t.Errorf("%s: got %v and %+v, want %s", coding, err, got, want)
		}
	}
}

// zeros is a body whose text is a long string of one letter.
func zeros(n int) []byte {
	return []byte(`{"model":"m","x":"` + strings.Repeat("0", n) + `"}`)
}

// sparse is a body of n bytes whose text is noise, with runs of one letter in between.
func sparse(n, run int) []byte {
	source := rand.New(rand.NewPCG(1, 2))
	b := []byte(`{"model":"m","x":"`)
	for len(b) < n {
		b = fmt.Appendf(b, "%016x%s", source.Uint64(), strings.Repeat("0", run))
	}
	return append(b[:n-2], `"}`...)
}

func TestDecodingLimits(t *testing.T) {
	const limit = 256 << 10
	noise := func(n int) []byte { return sparse(n, 0) }
	empty := encoded(nil, "gzip")
	small := parsers.New(parsers.Config{MaxDecodedBytes: limit})
	tests := map[string]struct {
		header string
		body   []byte
		read   bool
	}{
		"noise":                      {"gzip", encoded(noise(200_000), "gzip"), true},
		"noise of the limit":         {"gzip", encoded(noise(limit), "gzip"), true},
		"noise beyond the limit":     {"gzip", encoded(noise(limit+1), "gzip"), false},
		"little, but repetitive":     {"br", encoded(zeros(64<<10-30), "br"), true},
		"more, and repetitive: br":   {"br", encoded(zeros(200_000), "br"), false},
		"more, and repetitive: gzip": {"gzip", encoded(zeros(200_000), "gzip"), false},
		"more, and repetitive: zstd": {"zstd", encoded(zeros(200_000), "zstd"), false},
		"a bomb in a bomb":           {"gzip, gzip", encoded(zeros(2<<20), "gzip", "gzip"), false},
		"members of nothing": {"gzip", append(bytes.Repeat(empty, 300<<10/len(empty)),
			encoded(zeros(1), "gzip")...), false},
		"some members of nothing": {"gzip", append(bytes.Repeat(empty, 100<<10/len(empty)),
			encoded(zeros(1), "gzip")...), true},
		"frames of nothing": {"zstd", append(bytes.Repeat([]byte("\x50\x2a\x4d\x18\x00\x00\x00\x00"), 80<<10),
			encoded(zeros(1), "zstd")...), false},
		"a window of 8 MiB":  {"zstd", []byte("\x28\xb5\x2f\xfd\x00\x68\x69\x00\x00{\"model\":\"m\"}"), true},
		"a window of 16 MiB": {"zstd", []byte("\x28\xb5\x2f\xfd\x00\x70\x69\x00\x00{\"model\":\"m\"}"), false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got messages.Request
			if err := small.Parse(chatPath, jsonType, tc.header, tc.body, &got); err != nil {
				t.Fatalf("error %v, want none", err)
			}
			if (got.Model == "m") != tc.read {
				t.Errorf("%d bytes: model %q, want it read: %t", len(tc.body), got.Model, tc.read)
			}
		})
	}
}

// A bomb costs what its own length allows, however many come at a time.
func TestBombsCostLittle(t *testing.T) {
	const limit = 8 << 20
	bombs := map[string][]byte{}
	for coding := range encoders {
		bombs[coding] = encoded(sparse(limit+1, 400), coding) // the ratio is not what stops it
	}
	fresh := parsers.New(parsers.Config{MaxDecodedBytes: limit})
	peak := peakHeap(t, func() {
		var all sync.WaitGroup
		for i := range 24 {
			coding := []string{"gzip", "br", "zstd"}[i%3]
			all.Go(func() {
				var got messages.Request
				if err := fresh.Parse(chatPath, jsonType, coding, bombs[coding], &got); err != nil || got.Model != "" {
					t.Errorf("%s: error %v, model %q; want neither", coding, err, got.Model)
				}
			})
		}
		all.Wait()
	})
	// Of each that is decoded: its buffer, the one before while it doubles, and windows of at most 24 MiB. As much
	// again is garbage between two samples, and what waits in the pool.
	if most := uint64(min(max(runtime.GOMAXPROCS(0)/2, 2), 8)) * (2*limit + 24<<20) * 2; peak > most {
		t.Errorf("the heap grew by %d MiB, want at most %d", peak>>20, most>>20)
	}
}

// peakHeap is by how much the live heap grew while f ran, as far as samples show it.
func peakHeap(t *testing.T, f func()) (peak uint64) {
	t.Helper()
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				runtime.GC()
				runtime.ReadMemStats(&now)
				peak = max(peak, now.HeapAlloc-min(now.HeapAlloc, before.HeapAlloc))
			}
		}
	}()
	f()
	close(stop)
	<-done
	return peak
}

// Decoders and buffers are used again: an encoded body allocates what a plain one does, and what brotli needs for each.
func TestEncodedAllocations(t *testing.T) {
	chat := []byte(chatBody())
	if raceOn { // pools drop a part of what they are given
		return
	}
	for coding, want := range map[string]float64{"gzip": 3, "br": 6, "zstd": 3} {
		body := encoded(chat, coding)
		var got messages.Request
		n := testing.AllocsPerRun(100, func() {
			if err := parser.Parse(chatPath, jsonType, coding, body, &got); err != nil {
				t.Fatal(err)
			}
		})
		if n != want {
			t.Errorf("%s: %v allocations, want %v", coding, n, want)
		}
	}
}

func BenchmarkEncoded(b *testing.B) {
	chat := []byte(chatBody())
	for _, coding := range []string{"identity", "gzip", "br", "zstd"} {
		body := chat
		if coding != "identity" {
			body = encoded(chat, coding)
		}
		b.Run(coding, func(b *testing.B) {
			b.SetBytes(int64(len(chat)))
			b.ReportAllocs()
			for b.Loop() {
				var got messages.Request
				if err := parser.Parse(chatPath, jsonType, coding, body, &got); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
