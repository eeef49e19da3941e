package blockindex_test

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"pgregory.net/rapid"

	"github.com/signalbox-epp/signalbox/engine/blockindex"
)

// naiveHashes returns the definition: hash i covers hash i-1 and block i.
func naiveHashes(seed uint64, prompt string, maxBlocks int) []uint64 {
	var out []uint64
	before := seed
	for len(prompt) >= blockindex.BlockBytes && len(out) < maxBlocks {
		before = xxhash.Sum64(append(binary.LittleEndian.AppendUint64(nil, before), prompt[:blockindex.BlockBytes]...))
		out = append(out, before)
		prompt = prompt[blockindex.BlockBytes:]
	}
	return out
}

func TestHasherDoesNotDependOnPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		maxBlocks := rapid.IntRange(1, 6).Draw(t, "max blocks")
		h := blockindex.NewShortHasher(seed, maxBlocks)
		if rapid.Bool().Draw(t, "expect") {
			h.Expect(rapid.IntRange(0, 5000).Draw(t, "bytes"))
		}
		var prompt strings.Builder
		for _, n := range rapid.SliceOfN(rapid.IntRange(0, 600), 0, 6).Draw(t, "pieces") {
			piece := strings.Repeat(string(rune('a'+n%26)), n)
			prompt.WriteString(piece)
			h.Write([]byte(piece))
		}
		got := h.Blocks().Append(nil)
		want := naiveHashes(seed, prompt.String(), maxBlocks)
		if !slices.Equal(got, want) {
			t.Fatalf("prompt of %d bytes: hashes %x, want %x", prompt.Len(), got, want)
		}
		if again := h.Blocks(); again.Len() != 0 {
			t.Fatalf("after Blocks: %d blocks, want 0", again.Len())
		}
	})
}

func TestHasherSeedSeparates(t *testing.T) {
	prompt := strings.Repeat("x", 2*blockindex.BlockBytes)
	a, b := blockindex.NewHasher(1), blockindex.NewHasher(2)
	a.Write([]byte(prompt))
	b.Write([]byte(prompt))
	if x, y := a.Blocks(), b.Blocks(); x.At(0) == y.At(0) {
		t.Errorf("first hash under seeds 1 and 2: %x both, want different ones", x.At(0))
	}
}

func TestHasherAllocatesItsListOnly(t *testing.T) {
	prompt := []byte(strings.Repeat("0123456789abcdef", 1024))
	got := testing.AllocsPerRun(100, func() {
		h := blockindex.NewHasher(7)
		h.Expect(len(prompt))
		h.Write(prompt)
		if n := h.Blocks().Len(); n != len(prompt)/blockindex.BlockBytes {
			t.Fatalf("%d blocks, want %d", n, len(prompt)/blockindex.BlockBytes)
		}
	})
	if got != 1 {
		t.Errorf("%v allocations for one prompt, want 1", got)
	}
}

func BenchmarkHasher(b *testing.B) {
	prompt := []byte(strings.Repeat("0123456789abcdef", 1024))
	b.SetBytes(int64(len(prompt)))
	b.ReportAllocs()
	for b.Loop() {
		h := blockindex.NewHasher(7)
		h.Expect(len(prompt))
		h.Write(prompt)
		h.Blocks()
	}
}

// What is less than a block at the end has a hash of its own, of all that stands before it, too. After MaxBlocks there
// is none.
func TestRest(t *testing.T) {
	rest := func(text string) uint64 {
		h := blockindex.NewHasher(1)
		h.Write([]byte(text))
		h.Blocks()
		return h.Rest()
	}
	block := strings.Repeat("a", blockindex.BlockBytes)
	if rest("") != 0 || rest(block) != 0 || rest(block+"b") == 0 {
		t.Error("want a hash of what is less than a block, and none without it")
	}
	others := map[uint64]bool{}
	for _, text := range []string{"b", "bb", block + "b", block + block + "b", block + "c"} {
		others[rest(text)] = true
	}
	if len(others) != 5 {
		t.Errorf("%d hashes of 5 rests", len(others))
	}
	if n := rest(strings.Repeat(block, blockindex.MaxBlocks) + "b"); n != 0 {
		t.Errorf("behind all that is hashed stands %d", n)
	}
}
