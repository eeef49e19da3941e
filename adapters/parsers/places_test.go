package parsers

import (
	"bytes"
	"compress/gzip"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Who finds all places taken waits a moment, and goes on with the body unread if none becomes free.
func TestDecodingPlaces(t *testing.T) {
	for name, tc := range map[string]struct {
		free time.Duration // when one place becomes free; 0 = it is
		want error
		took time.Duration
	}{
		"free":         {0, nil, 0},
		"free in time": {30 * time.Millisecond, nil, 30 * time.Millisecond},
		"busy":         {time.Second, errNotDecoded, decoderWait},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, used := newDecoders(1<<20), ""
				for len(d.places) < cap(d.places) {
					d.places <- struct{}{}
				}
				start := time.Now()
				if tc.free == 0 {
					<-d.places
				} else {
					time.AfterFunc(tc.free, func() { <-d.places })
				}
				err := d.read(codingList{}, []byte("text"), func(text []byte) error {
					used = string(text)
					return nil
				})
				if !errors.Is(err, tc.want) || (used == "text") != (tc.want == nil) || time.Since(start) != tc.took {
					t.Errorf("read %q, error %v, after %v; want error %v after %v", used, err, time.Since(start),
						tc.want, tc.took)
				}
			})
		})
	}
}

// A body that takes too long is given up between two chunks.
func TestDecodingTime(t *testing.T) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(make([]byte, freeBytes)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for within, want := range map[time.Duration]error{decodeTime: nil, -1: errNotDecoded} {
		d := newDecoders(1 << 20)
		d.within = within
		err := d.read(codingList{items: [maxCodings]coding{gzipCoding}, n: 1}, b.Bytes(),
			func([]byte) error { return nil })
		if !errors.Is(err, want) {
			t.Errorf("within %v: error %v, want %v", within, err, want)
		}
	}
}
