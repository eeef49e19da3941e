package modelname

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const (
	jsonType   = "application/json"
	eventsType = "text/event-stream"
)

// restored is what a Restorer makes of a body that comes in these pieces.
func restored(r *Restorer, pieces ...string) string {
	var got []byte
	for _, p := range pieces {
		got = r.Append(got, []byte(p))
	}
	return string(r.Flush(got))
}

// sameAtEveryCut holds what is made of a body that is cut once, anywhere, and of its single bytes, against want.
func sameAtEveryCut(t *testing.T, fresh func() *Restorer, body, want string) {
	t.Helper()
	for i := range len(body) + 1 {
		if got := restored(fresh(), body[:i], body[i:]); got != want {
			t.Fatalf("%q, cut at %d: got %q, want %q", body, i, got, want)
		}
	}
	if got := restored(fresh(), strings.Split(body, "")...); got != want {
		t.Fatalf("%q, byte by byte: got %q, want %q", body, got, want)
	}
}

func TestRestorer(t *testing.T) {
	long := strings.Repeat("x", 3000)
	tests := map[string]struct {
		kind          string // "" = JSON
		served, asked string // "" = new and old
		body, want    string // want "" = body
	}{
		"the top": {body: `{"model":"new","n":1}`, want: `{"model":"old","n":1}`},
		"spaces, order and numbers stay": {
			body: "\n{ \"n\" : 12345678901234567890 ,\t\"model\" \r\n:\t\"new\" , \"x\":\"\\u00e9\"}\n",
			want: "\n{ \"n\" : 12345678901234567890 ,\t\"model\" \r\n:\t\"old\" , \"x\":\"\\u00e9\"}\n",
		},
		"message and response": {
			body: `{"message":{"a":[{}],"model":"new"},"response":{"model":"new","m":{}},"model":"new"}`,
			want: `{"message":{"a":[{}],"model":"old"},"response":{"model":"old","m":{}},"model":"old"}`,
		},
		"nothing deeper": {body: `{"choices":[{"model":"new","message":{"model":"new"}}],"metadata":{"model":"new"},` +
			`"message":{"response":{"model":"new"},"x":[{"model":"new"}]},"response":[{"model":"new"}]}`},
		"no text":               {body: `{"a":"\"model\":\"new\"","b":"model","c":"new","d":["model","new"]}`},
		"a value that is a key": {body: `{"a":"model","b":"new","model":{"model":"new"}}`},
		"after a deeper one":    {body: `{"message":{},"a":{"model":"new"},"model":["new"]}`},
		"another model":         {body: `{"model":"newer","message":{"model":"ne"}}`},
		"no string":             {body: `{"model":null,"message":{"model":17}}`},
		"twice":                 {body: `{"model":"new","model":"new"}`, want: `{"model":"old","model":"old"}`},
		"escaped":               {body: `{"mod\u0065l":"n\u0065w"}`, want: `{"mod\u0065l":"old"}`},
		"escaped slash":         {served: "org/new", body: `{"model":"org\/new"}`, want: `{"model":"old"}`},
		"to be escaped":         {asked: `a"\<é`, body: `{"model":"new"}`, want: `{"model":"a\"\\<é"}`},
		"long ones": {
			served: long, asked: long + "y",
			body: `{"model":"` + long + `"}`, want: `{"model":"` + long + `y"}`,
		},
		"far longer than served": {
			body: `{"model":"` + long + `","message":{"model":"new"}}`,
			want: `{"model":"` + long + `","message":{"model":"old"}}`,
		},
		"one object after other": {
			body: "{\"model\":\"new\"}\n{\"model\":\"new\"}", want: "{\"model\":\"old\"}\n{\"model\":\"old\"}",
		},
		"byte order mark":          {body: "\xef\xbb\xbf{\"model\":\"new\"}", want: "\xef\xbb\xbf{\"model\":\"old\"}"},
		"cut off":                  {body: `{"model":"ne`},
		"a list":                   {body: `[{"model":"new"}]`},
		"no JSON":                  {body: `model: "new" {"model":"new"}`},
		"too many ends":            {body: `{}}{"model":"new"}`},
		"JSON of no declared type": {kind: "-", body: ` {"model":"new"}`, want: ` {"model":"old"}`},
		"problem": {
			kind: "application/problem+json; charset=utf-8", body: `{"model":"new"}`, want: `{"model":"old"}`,
		},
		"events": {
			kind: eventsType,
			body: "data: {\"model\":\"new\",\"choices\":[]}\n\ndata: {\"model\":\"new\"}\n\ndata: [DONE]\n\n",
			want: "data: {\"model\":\"old\",\"choices\":[]}\n\ndata: {\"model\":\"old\"}\n\ndata: [DONE]\n\n",
		},
		"events of no declared type": {
			kind: "-", body: "\n\ndata: {\"model\":\"new\"}\n\n", want: "\n\ndata: {\"model\":\"old\"}\n\n",
		},
		"named events, no space, CRLF": {
			kind: "Text/Event-Stream; charset=utf-8",
			body: ": hi\r\nevent: message_start\r\ndata:{\"message\":{\"model\":\"new\"}}\r\n" +
				"id: 1\r\n\r\ndata:{\"model\":\"new\"}",
			want: ": hi\r\nevent: message_start\r\ndata:{\"message\":{\"model\":\"old\"}}\r\n" +
				"id: 1\r\n\r\ndata:{\"model\":\"old\"}",
		},
		"CR alone": {kind: eventsType, body: "data: {\"model\":\"new\"}\r\rdata: {\"model\":\"new\"}\r\r",
			want: "data: {\"model\":\"old\"}\r\rdata: {\"model\":\"old\"}\r\r"},
		"an object in two lines": {kind: eventsType, body: "data: {\"a\":1,\ndata: \"model\":\ndata: \"new\"}\n\n",
			want: "data: {\"a\":1,\ndata: \"model\":\ndata: \"old\"}\n\n"},
		"other fields": {kind: eventsType, body: "event: {\"model\":\"new\"}\n" +
			"date: {\"model\":\"new\"}\n{\"model\":\"new\"}\n\n"},
		"a string in two lines": {kind: eventsType, body: "data: {\"model\":\"ne\ndata: w\",\"model\":\"new\"}\n\n"},
		"after a broken event": {kind: eventsType, body: "data: {\"model\":\"ne\n\ndata: {\"model\":\"new\"}\n\n",
			want: "data: {\"model\":\"ne\n\ndata: {\"model\":\"old\"}\n\n"},
		"events cut off": {kind: eventsType, body: "data: {\"model\":\"new"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			kind, served, asked, want := tc.kind, tc.served, tc.asked, tc.want
			for _, empty := range []struct {
				text *string
				with string
			}{{&kind, jsonType}, {&served, "new"}, {&asked, "old"}, {&want, tc.body}} {
				if *empty.text == "" {
					*empty.text = empty.with
				}
			}
			if kind == "-" {
				kind = ""
			}
			sameAtEveryCut(t, func() *Restorer { return New(kind, served, asked) }, tc.body, want)
		})
	}
}

func TestNoRestorer(t *testing.T) {
	for _, contentType := range []string{"text/plain", "audio/mpeg", "application/octet-stream", "application/jsonl"} {
		if New(contentType, "new", "old") != nil {
			t.Errorf("a body of %s has names, want none", contentType)
		}
	}
	if New(jsonType, "same", "same") != nil {
		t.Error("a name is put in its own place, want nothing done")
	}
}

// What is held back is bounded by the name that it may be.
func TestHeldBackIsBounded(t *testing.T) {
	r := New(jsonType, "new", "old")
	_ = r.Append(nil, []byte(`{"model":"`+strings.Repeat("n", 1<<20)))
	if len(r.held) > 0 || cap(r.held) > 64 {
		t.Errorf("%d bytes are held, want none", cap(r.held))
	}
}

// drawn writes a body as it came, and beside it what is to become of it.
type drawn struct {
	t          *rapid.T
	came, want strings.Builder
}

func (d *drawn) both(s string) {
	d.came.WriteString(s)
	d.want.WriteString(s)
}

func (d *drawn) space() {
	d.both(rapid.SampledFrom([]string{"", "", "", " ", "\t "}).Draw(d.t, "space"))
}

// names are keys and texts: those that are of interest, whole, in part and escaped, and others.
var names = []string{
	`"model"`, `"mod\u0065l"`, `"message"`, `"response"`, `"new"`, `"n\u0065w"`, `"newer"`, `"ne"`, `""`, `"\\"`,
	`"\"model\":\"new\""`, `"{[,:]}"`, `"é"`,
}

// value writes a value. isName says that it is that of a model.
func (d *drawn) value(depth int, looks, isName bool) {
	kind := rapid.IntRange(0, 5).Draw(d.t, "kind")
	switch {
	case kind == 0 && depth < 4:
		d.object(depth+1, looks)
	case kind == 1 && depth < 4:
		d.both("[")
		for i := range rapid.IntRange(0, 3).Draw(d.t, "length") {
			d.comma(i)
			d.value(depth+1, false, false)
		}
		d.both("]")
	case kind == 2:
		d.both(rapid.SampledFrom([]string{"17", "-1.5e300", "true", "null", "12345678901234567890"}).Draw(d.t, "word"))
	default:
		text := rapid.SampledFrom(names).Draw(d.t, "text")
		d.came.WriteString(text)
		if isName && (text == `"new"` || text == `"n\u0065w"`) {
			text = `"old"`
		}
		d.want.WriteString(text)
	}
	d.space()
}

func (d *drawn) comma(i int) {
	if i > 0 {
		d.both(",")
		d.space()
	}
}

// object writes an object. looks says that a model in it counts.
func (d *drawn) object(depth int, looks bool) {
	d.both("{")
	for i := range rapid.IntRange(0, 4).Draw(d.t, "members") {
		d.comma(i)
		name := rapid.SampledFrom(names).Draw(d.t, "key")
		d.both(name)
		d.space()
		d.both(":")
		d.space()
		var text string
		if err := json.Unmarshal([]byte(name), &text); err != nil {
			d.t.Fatal(err)
		}
		d.value(depth, depth == 1 && (text == "message" || text == "response"), looks && text == "model")
	}
	d.both("}")
}

// Drawn bodies in drawn pieces become what the one that drew them says.
func TestDrawnBodies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &drawn{t: t}
		kind := rapid.SampledFrom([]string{jsonType, eventsType}).Draw(t, "kind")
		if kind == jsonType {
			d.object(1, true)
		} else {
			for range rapid.IntRange(1, 4).Draw(t, "events") {
				end := rapid.SampledFrom([]string{"\n", "\r\n", "\r"}).Draw(t, "end")
				before := []string{"", "event: model" + end, ": \"model\":\"new\"" + end}
				d.both(rapid.SampledFrom(before).Draw(t, "before"))
				d.both("data:")
				d.space()
				d.object(1, true)
				d.both(end + end)
			}
		}
		var pieces []string
		for rest := d.came.String(); rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		if diff := cmp.Diff(d.want.String(), restored(New(kind, "new", "old"), pieces...)); diff != "" {
			t.Fatalf("%q: want -, got +:\n%s", pieces, diff)
		}
	})
}

// Whatever comes, the pieces make no difference, and but for names every byte passes in its order.
func FuzzRestorer(f *testing.F) {
	f.Add(`{"model":"new","message":{"model":"new"}}`, uint(3), uint8(0))
	f.Add("data: {\"response\":{\"model\":\"new\"}}\r\n\r\n", uint(30), uint8(1))
	f.Add("\xef\xbb\xbfdata:{\"model\":\"n\\u0065w\"}\n\n{}", uint(17), uint8(2))
	f.Fuzz(func(t *testing.T, body string, cut uint, kind uint8) {
		contentType := []string{jsonType, eventsType, ""}[kind%3]
		at := int(cut % uint(len(body)+1))
		whole := restored(New(contentType, "new", "old"), body)
		if got := restored(New(contentType, "new", "old"), body[:at], body[at:]); got != whole {
			t.Fatalf("%q, cut at %d: got %q, want %q", body, at, got, whole)
		}
		if back := strings.ReplaceAll(whole, `"old"`, `"new"`); !strings.Contains(body, `old`) &&
			!strings.Contains(body, `\`) && back != body {
			t.Fatalf("%q became %q, in which more differs than the name", body, whole)
		}
	})
}

func BenchmarkRestorer(b *testing.B) {
	chunk := []byte(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"new","choices":` +
		`[{"index":0,"delta":{"content":" hello"},"logprobs":null,"finish_reason":null}]}` + "\n\n")
	r := New(eventsType, "new", "old")
	room := make([]byte, 0, 2*len(chunk))
	b.SetBytes(int64(len(chunk)))
	b.ReportAllocs()
	for b.Loop() {
		r.Append(room[:0], chunk)
	}
}
