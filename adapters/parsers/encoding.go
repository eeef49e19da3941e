package parsers

import (
	"compress/gzip"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// Limits of decoding. What goes beyond one of them stays unread, so they bound what a body can cost and nothing else.
const (
	// maxCodings is how many codings one body may have: clients apply one, and each costs a pass.
	maxCodings = 4
	// maxRatio is how many times longer than the encoded body its text may be. JSON text reaches 3 to 20.
	maxRatio = 100
	// freeBytes may come out of any body, whatever its ratio: a short one may well repeat itself.
	freeBytes = 64 << 10
	// leadBytes is how far what went in may be ahead of what came out. Decoders read a block ahead, 128 KiB at most;
	// past that the body is made of blocks and frames that hold nothing,
	// which cost time and never meet the limits above.
	leadBytes = 256 << 10
	// windowBytes is the window that RFC 9659 lets a zstd body ask for.
	windowBytes = 8 << 20
	// keptBytes is the longest buffer that is kept for the next body.
	keptBytes = 1 << 20
	// chunkBytes are decoded at a time, so that a body past its limits is noticed early.
	chunkBytes = 32 << 10
	// maxDecoding bodies are decoded at a time, which bounds the memory whatever the number of cores.
	maxDecoding = 8
	// decoderWait is the longest wait for one of these places. Decoding only computes, so a longer queue is an
	// overload.
	decoderWait = 100 * time.Millisecond
	// decodeTime of one body. It stands above all others: a body can be cut into blocks so small that each byte costs
	// ten times what it costs elsewhere.
	decodeTime = time.Second
)

type coding uint8

const (
	gzipCoding coding = iota
	brotliCoding
	zstdCoding
	codingKinds
)

// codingList holds the codings of a body in the order in which they were applied.
type codingList struct {
	items [maxCodings]coding
	n     int
}

// codings reads a content-encoding, which may be a list. Identity and empty items do not count. It returns false if a
// coding is unknown, or there are too many.
func codings(header string) (l codingList, ok bool) {
	for header != "" {
		var name string
		name, header, _ = strings.Cut(header, ",")
		name = strings.Trim(name, " \t")
		var c coding
		switch {
		case name == "" || strings.EqualFold(name, "identity"):
			continue
		case strings.EqualFold(name, "gzip") || strings.EqualFold(name, "x-gzip"):
			c = gzipCoding
		case strings.EqualFold(name, "br"):
			c = brotliCoding
		case strings.EqualFold(name, "zstd"):
			c = zstdCoding
		default:
			return l, false
		}
		if l.n == maxCodings {
			return l, false
		}
		l.items[l.n] = c
		l.n++
	}
	return l, true
}

var (
	errNotDecoded = errors.New("the body cannot be decoded within the limits")
	errLead       = errors.New("too much went in for what came out")
)

// decoders decodes bodies, few at a time.
type decoders struct {
	maxBytes int           // of one decoded body
	within   time.Duration // decodeTime
	places   chan struct{} // each holds one workspace
	spaces   sync.Pool     // of *workspace
}

// newDecoders leaves half of the cores to requests that are not compressed. There are at least two places, or every
// body would wait for one whose goroutine the kernel has put aside.
func newDecoders(maxBytes int) *decoders {
	places := min(max(runtime.GOMAXPROCS(0)/2, 2), maxDecoding)
	return &decoders{maxBytes: maxBytes, within: decodeTime, places: make(chan struct{}, places)}
}

// read calls use with the text of a body, which is valid until use returns. It returns errNotDecoded if use was not
// called.
func (d *decoders) read(l codingList, body []byte, use func(text []byte) error) error {
	if !d.enter() {
		return errNotDecoded
	}
	defer func() { <-d.places }()
	w, ok := d.spaces.Get().(*workspace)
	if !ok {
		w = new(workspace)
	}
	defer func() {
		w.forget()
		d.spaces.Put(w)
	}()
	w.until = time.Now().Add(d.within)
	text, limit := body, min(max(len(body)*maxRatio, freeBytes), d.maxBytes)
	for i := l.n - 1; i >= 0; i-- { // the coding that was applied last is undone first
		if text, ok = w.decode(l.items[i], text, limit); !ok {
			return errNotDecoded
		}
	}
	return use(text)
}

// enter takes a place. It returns false if none became free in time.
func (d *decoders) enter() bool {
	select {
	case d.places <- struct{}{}:
		return true
	default:
	}
	timeout := time.NewTimer(decoderWait)
	defer timeout.Stop()
	select {
	case d.places <- struct{}{}:
		return true
	case <-timeout.C:
		return false
	}
}

// decoder is one of a library, to be used again and again.
type decoder interface {
	io.Reader
	Reset(from io.Reader) error
}

func newDecoder(c coding) decoder {
	switch c {
	case brotliCoding:
		return new(brotli.Reader)
	case zstdCoding:
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(windowBytes))
		if err != nil {
			panic(err) // of the options, which are constants
		}
		return d
	default:
		return new(gzip.Reader)
	}
}

// workspace is the memory that one body needs at a time: a decoder of each kind, made when it is first needed, what one
// pass writes, and what the pass before wrote.
type workspace struct {
	decoders   [codingKinds]decoder
	in         input
	until      time.Time
	out, spare []byte
}

// forget drops what refers to the body, and buffers that are too long to wait.
func (w *workspace) forget() {
	w.in = input{}
	if cap(w.out) > keptBytes {
		w.out = nil
	}
	if cap(w.spare) > keptBytes {
		w.spare = nil
	}
}

// decode undoes one coding. The result lives until the second next call. False = it is broken, or past a limit.
func (w *workspace) decode(c coding, body []byte, limit int) ([]byte, bool) {
	if w.decoders[c] == nil {
		w.decoders[c] = newDecoder(c)
	}
	d := w.decoders[c]
	w.in = input{rest: body}
	w.out, w.spare = w.spare[:0], w.out
	if d.Reset(&w.in) != nil {
		return nil, false
	}
	for idle := 0; idle < 2; { // reads in a row that brought nothing
		w.out = withRoom(w.out, limit+1) // a byte past the limit shows that the text is longer
		end := min(cap(w.out), len(w.out)+chunkBytes, limit+1)
		n, err := d.Read(w.out[len(w.out):end])
		w.out = w.out[:len(w.out)+n]
		w.in.out = len(w.out)
		switch {
		case len(w.out) > limit:
			return nil, false
		case errors.Is(err, io.EOF):
			return w.out, true // no library ends before its input does
		case err != nil || time.Now().After(w.until):
			return nil, false
		case n == 0:
			idle++
		default:
			idle = 0
		}
	}
	return nil, false
}

// withRoom returns a full buffer twice the room, up to most bytes.
func withRoom(b []byte, most int) []byte {
	if len(b) < cap(b) {
		return b
	}
	grown := make([]byte, len(b), min(max(2*cap(b), chunkBytes), most))
	copy(grown, b)
	return grown
}

// input is a body on its way into a decoder.
type input struct {
	rest    []byte
	in, out int // bytes that went in, and that came out
}

func (i *input) Read(p []byte) (int, error) {
	if len(i.rest) == 0 {
		return 0, io.EOF
	}
	if i.in > i.out+leadBytes {
		return 0, errLead
	}
	n := copy(p, i.rest)
	i.rest, i.in = i.rest[n:], i.in+n
	return n, nil
}

// ReadByte keeps compress/flate from putting a buffer in between, which would read further than it needs.
func (i *input) ReadByte() (byte, error) {
	if len(i.rest) == 0 {
		return 0, io.EOF
	}
	if i.in > i.out+leadBytes {
		return 0, errLead
	}
	b := i.rest[0]
	i.rest, i.in = i.rest[1:], i.in+1
	return b, nil
}
