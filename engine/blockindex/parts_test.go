package blockindex_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/signalbox-epp/signalbox/engine/blockindex"
)

// parted is a prompt by its parts; "" = it does not have the part.
type parted [blockindex.Parts]string

// hash writes the parts in an order, in pieces.
func (p parted) hash(h *blockindex.Hasher, order []int, piece int) []uint64 {
	for _, part := range order {
		h.Begin(blockindex.Part(part))
		for _, bytes := range slices.Collect(slices.Chunk([]byte(p[part]), piece)) {
			h.Write(bytes)
		}
	}
	return h.Blocks().Append(nil)
}

// drawParts draws a prompt whose parts are of a few texts, so that beginnings are often in common.
func drawParts(t *rapid.T, name string) (p parted) {
	for i := range p {
		n := rapid.SampledFrom([]int{0, 0, 1, 127, 128, 129, 255, 256, 300, 700}).Draw(t, name+" bytes")
		p[i] = strings.Repeat(rapid.SampledFrom([]string{"a", "b"}).Draw(t, name+" text"), n)
	}
	return p
}

// The order in which parts come, what they were before, and the keys between them change no hash.
func TestPartsComeInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawParts(t, "prompt")
		most := rapid.IntRange(1, 8).Draw(t, "max blocks")
		key := rapid.Uint64Range(0, 2).Draw(t, "key")
		inOrder := blockindex.NewShortHasher(1, most)
		inOrder.KeepApart(key)
		want := p.hash(&inOrder, []int{0, 1, 2, 3, 4}, 1000)

		h := blockindex.NewShortHasher(1, most)
		if rapid.Bool().Draw(t, "expect") {
			h.Expect(rapid.IntRange(0, 5000).Draw(t, "bytes"))
		}
		for _, part := range rapid.SliceOfN(rapid.IntRange(0, 5), 0, 4).Draw(t, "voided") {
			if part == 5 {
				h.BeginKey()
				h.Write([]byte(strings.Repeat("k", 600)))
				h.EndKey()
				continue
			}
			h.Begin(blockindex.Part(part))
			h.Write([]byte(strings.Repeat("v", rapid.IntRange(0, 900).Draw(t, "voided bytes"))))
		}
		h.KeepApart(key)
		order := rapid.Permutation([]int{0, 1, 2, 3, 4}).Draw(t, "order")
		if got := p.hash(&h, order, rapid.IntRange(1, 300).Draw(t, "piece")); !slices.Equal(got, want) {
			t.Fatalf("%q in the order %v: %x, want %x", p, order, got, want)
		}
	})
}

// Two prompts have a block in common where all parts before it are the same, and the part begins the same; in number
// whole blocks are as many as the text is long, give or take half a block for each part.
func TestPartsPartWhatFollows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawParts(t, "one"), drawParts(t, "other")
		blocksOf := func(p parted, key uint64) []uint64 {
			h := blockindex.NewHasher(1)
			h.KeepApart(key)
			blocks := p.hash(&h, []int{4, 2, 3, 1, 0}, 1000)
			if h.Rest() {
				blocks = blocks[:len(blocks)-1]
			}
			return blocks
		}
		x, y := blocksOf(a, 0), blocksOf(b, 0)
		want, bytes, same := 0, 0, true
		for i, text := range a {
			n := len(text) / blockindex.BlockBytes
			half := i < int(blockindex.Turns) && len(text)%blockindex.BlockBytes >= blockindex.BlockBytes/2
			if bytes += len(text); !same {
				continue
			}
			if same = text == b[i]; same && half {
				n++
			}
			if !same {
				n = min(len(text), len(b[i])) / blockindex.BlockBytes
				if n > 0 && text[0] != b[i][0] {
					n = 0
				}
			}
			want += n
		}
		lead := 0
		for lead < min(len(x), len(y)) && x[lead] == y[lead] {
			lead++
		}
		if lead != want {
			t.Fatalf("%q and %q: %d blocks in common, want %d", a, b, lead, want)
		}
		if got := len(x); got*blockindex.BlockBytes-bytes > 4*blockindex.BlockBytes/2 ||
			bytes-got*blockindex.BlockBytes > 4*blockindex.BlockBytes/2+blockindex.BlockBytes {
			t.Fatalf("%d bytes are %d blocks", bytes, got)
		}
		for _, block := range blocksOf(a, 7) {
			if slices.Contains(x, block) {
				t.Fatalf("%q: with a key and without one, block %x", a, block)
			}
		}
	})
}

func TestKeysAreHashesOfTheirText(t *testing.T) {
	key := func(text string) uint64 {
		h := blockindex.NewHasher(1)
		h.Write([]byte("before"))
		h.BeginKey()
		h.Write([]byte(text))
		return h.EndKey()
	}
	seen := map[uint64]int{}
	for _, n := range []int{1, 256, 257, 600} {
		for _, letter := range []string{"a", "b"} {
			sum := key(strings.Repeat(letter, n))
			if before, ok := seen[sum]; ok || sum != key(strings.Repeat(letter, n)) {
				t.Errorf("the key of %d times %s is %x, as that of %d letters", n, letter, sum, before)
			}
			seen[sum] = n
		}
	}
}

// However the parts come, a prompt costs the list of its blocks and no other memory.
func TestPartsAllocateTheListOnly(t *testing.T) {
	text := []byte(strings.Repeat("0123456789abcdef", 1<<10))
	got := testing.AllocsPerRun(100, func() {
		h := blockindex.NewHasher(7)
		h.Expect(5*len(text) - 4)
		for _, part := range []blockindex.Part{4, 3, 2, 1, 0} {
			h.Begin(part)
			h.Write(text[:len(text)-1]) // each part has a rest
		}
		h.Blocks()
	})
	if got != 1 {
		t.Errorf("%v allocations for one prompt, want 1", got)
	}
}

// Parts that are longer than what is hashed of a prompt take room for as many times that at most.
func TestLongPartsTakeBoundedRoom(t *testing.T) {
	const most = 4
	h := blockindex.NewShortHasher(1, most)
	h.Expect(1 << 20)
	long := []byte(strings.Repeat("x", 1<<20))
	for _, part := range []blockindex.Part{4, 3, 2, 1, 0} {
		h.Begin(part)
		h.Write(long)
	}
	if room := h.Room(); room > most*int(blockindex.Parts)+3 {
		t.Errorf("room for %d blocks, want %d at most", room, most*int(blockindex.Parts)+3)
	}
	first := blockindex.NewShortHasher(1, most)
	first.Begin(0)
	first.Write(long)
	if got, want := h.Blocks().Append(nil), first.Blocks().Append(nil); !slices.Equal(got, want) || len(got) != most {
		t.Errorf("blocks %x, want those of the first part alone, %x", got, want)
	}
}
