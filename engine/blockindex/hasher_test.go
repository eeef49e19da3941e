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

// naiveHashes returns the definition: hash i covers hash i-1 and block i, of which the last may be shorter.
func naiveHashes(seed uint64, prompt string, maxBlocks int) []uint64 {
	var out []uint64
	before := seed
	for len(prompt) > 0 && len(out) < maxBlocks {
		n := min(len(prompt), blockindex.BlockBytes)
		before = xxhash.Sum64(append(binary.LittleEndian.AppendUint64(nil, before), prompt[:n]...))
		out = append(out, before)
		prompt = prompt[n:]
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
		part := prompt.Len()%blockindex.BlockBytes > 0 && prompt.Len() < maxBlocks*blockindex.BlockBytes
		if h.Rest() != part {
			t.Fatalf("prompt of %d bytes: the last block is of less than one: %t", prompt.Len(), !part)
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
