package parsers

import (
	"bufio"
	"bytes"
	"mime"
	"net/textproto"
	"strings"
)

// Limits of a form. What goes beyond them ends the reading, not the request.
const (
	maxFormTypeBytes   = 1 << 10 // of the content type, which carries the boundary; RFC 2046 lets that have 70
	maxPartHeaderBytes = 8 << 10 // of one part
	maxParts           = 1000
)

// isForm reports whether a body of this content type is a form with parts.
func isForm(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(media), "multipart/form-data")
}

// formModel returns the value of the field model of a form, as a part of body, or nil if the form has none. A file is
// no field. Of a field that stands twice the last value counts. Reading ends where the form is broken, cut off or past
// a limit.
func formModel(contentType string, body []byte) []byte {
	if len(contentType) > maxFormTypeBytes {
		return nil
	}
	_, parameters, err := mime.ParseMediaType(contentType)
	if err != nil || parameters["boundary"] == "" {
		return nil
	}
	f := form{rest: body, delimiter: []byte("\r\n--" + parameters["boundary"])}
	if !f.begin() {
		return nil
	}
	var model []byte
	for range maxParts {
		isModel, ok := f.header()
		if !ok {
			break
		}
		value, more, ok := f.content()
		if ok && isModel {
			model, _ = bytes.CutPrefix(value, []byte("\r\n")) // the blank line
		}
		if !more {
			break
		}
	}
	return model
}

// form walks the parts of a body without a copy of what is in them.
type form struct {
	rest      []byte
	delimiter []byte // with the line break before it, which does not belong to the content that it ends
	bytes     bytes.Reader
	lines     *bufio.Reader
}

// begin steps over what stands before the first part. It returns false if there is no part.
func (f *form) begin() bool {
	if bytes.HasPrefix(f.rest, f.delimiter[2:]) {
		if behind, last, ok := lineEnd(f.rest[len(f.delimiter)-2:]); ok {
			f.rest = behind
			return !last
		}
	}
	_, more, ok := f.content()
	return ok && more
}

// content steps over the content of a part and the delimiter that ends it. more says that another part begins; ok is
// false if no delimiter ends the content.
func (f *form) content() (content []byte, more, ok bool) {
	at := 0
	for {
		i := bytes.Index(f.rest[at:], f.delimiter)
		if i < 0 {
			return nil, false, false
		}
		at += i + len(f.delimiter)
		if behind, last, ok := lineEnd(f.rest[at:]); ok {
			content, f.rest = f.rest[:at-len(f.delimiter)], behind
			return content, !last, true
		}
	}
}

// lineEnd returns what stands behind the line of a delimiter. ok is false if the line goes on, because then it was no
// delimiter.
func lineEnd(b []byte) (behind []byte, last, ok bool) {
	if bytes.HasPrefix(b, []byte("--")) {
		return nil, true, true
	}
	b = bytes.TrimLeft(b, " \t")
	behind, ok = bytes.CutPrefix(b, []byte("\r\n"))
	return behind, false, ok
}

// header reads the header of a part, and returns whether the part is the model. ok is false if the header is broken or
// too long.
func (f *form) header() (isModel, ok bool) {
	fieldBytes := 0 // a header may be empty: then the blank line comes at once
	if !bytes.HasPrefix(f.rest, []byte("\r\n")) {
		end := bytes.Index(f.rest[:min(len(f.rest), maxPartHeaderBytes)], []byte("\r\n\r\n"))
		if end < 0 {
			return false, false
		}
		fieldBytes = end + 2
	}
	header := f.rest[:fieldBytes+2]
	f.rest = f.rest[fieldBytes:] // from the blank line on: a delimiter may follow it at once
	f.bytes.Reset(header)
	if f.lines == nil {
		f.lines = bufio.NewReaderSize(&f.bytes, 512)
	}
	f.lines.Reset(&f.bytes)
	fields, err := textproto.NewReader(f.lines).ReadMIMEHeader()
	if err != nil {
		return false, false
	}
	disposition, parameters, err := mime.ParseMediaType(fields.Get("Content-Disposition"))
	_, isFile := parameters["filename"]
	return err == nil && disposition == "form-data" && parameters["name"] == "model" && !isFile, true
}
