package parsers_test

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/adapters/parsers"
	"github.com/signalbox-epp/signalbox/messages"
)

const (
	audioPath = "/v1/audio/transcriptions"
	formType  = "multipart/form-data; boundary=cut"
)

// lines joins lines as MIME has them.
func lines(l ...string) string { return strings.Join(l, "\r\n") }

func field(name, value string) string {
	return lines("--cut", `Content-Disposition: form-data; name="`+name+`"`, "", value, "")
}

func file(name, value string) string {
	return lines("--cut", `Content-Disposition: form-data; name="`+name+`"; filename="a.wav"`,
		"Content-Type: audio/wav", "", value, "")
}

func TestForms(t *testing.T) {
	sound := strings.Repeat("RIFF\x00\xff\r\n--cu\r\n--cutlery\r\n\r\n", 5000)
	model, end := field("model", "whisper"), "--cut--\r\n"
	header := func(l ...string) string { return lines(append(append([]string{"--cut"}, l...), "", "whisper", end)...) }
	tests := map[string]struct{ contentType, body, want string }{
		"model first":         {formType, model + file("file", sound) + end, "whisper"},
		"model behind a file": {formType, file("file", sound) + field("language", "en") + model + end, "whisper"},
		"the last one counts": {formType, field("model", "a") + field("model", "b") + end, "b"},
		"no model":            {formType, file("file", sound) + end, ""},
		"no value":            {formType, field("model", "") + end, ""},
		"delimiter at once": {formType, lines("--cut", `Content-Disposition: form-data; name="model"`, "",
			"--cut--"), ""},
		"a file named model":   {formType, file("model", "whisper") + end, ""},
		"another name":         {formType, field("Model", "a") + field("model ", "b") + field("xmodel", "c") + end, ""},
		"not UTF-8":            {formType, field("model", "a\xffb") + end, "a\uFFFDb"},
		"several lines":        {formType, field("model", "a\r\nb") + end, "a\r\nb"},
		"too long a name":      {formType, field("model", strings.Repeat("x", 1025)) + end, ""},
		"before the parts":     {formType, "see below\r\n" + model + end, "whisper"},
		"behind the parts":     {formType, model + end + field("model", "late"), "whisper"},
		"space at a delimiter": {formType, strings.Replace(model, "--cut", "--cut \t", 1) + end, "whisper"},
		"quoted boundary":      {`Multipart/Form-Data; charset=x; Boundary="cut"`, model + end, "whisper"},
		"unquoted name":        {formType, header(`content-disposition: form-data; name=model`), "whisper"},
		"header of two lines":  {formType, header("Content-Disposition: form-data;", ` name="model"`), "whisper"},
		"other fields first": {formType, header("Content-Type: text/plain; charset=utf-8",
			`Content-Disposition: form-data; name="model"`), "whisper"},
		"another disposition":  {formType, header(`Content-Disposition: attachment; name="model"`), ""},
		"part without header":  {formType, lines("--cut", "", "text", "") + model + end, "whisper"},
		"cut behind the model": {formType, model + "--cut\r\nContent-Dispo", "whisper"},
		"cut in a file":        {formType, model + file("file", sound)[:200], "whisper"},
		"cut in the model":     {formType, field("model", "whis"), ""},
		"header cut":           {formType, "--cut\r\nContent-Disposition: form-data; name=\"model\"\r\n", ""},
		"header without colon": {formType, lines("--cut", "nothing", "", "x", "") + model + end, ""},
		"header just fits": {formType, header("X: "+strings.Repeat("x", 8<<10-60),
			`Content-Disposition: form-data; name="model"`), "whisper"},
		"header too long": {formType, header("X: "+strings.Repeat("x", 8<<10),
			`Content-Disposition: form-data; name="model"`), ""},
		"many parts":          {formType, strings.Repeat(field("a", ""), 999) + model + end, "whisper"},
		"too many parts":      {formType, strings.Repeat(field("a", ""), 1000) + model + end, ""},
		"bare line feeds":     {formType, strings.ReplaceAll(model+end, "\r\n", "\n"), ""},
		"no boundary":         {"multipart/form-data", model + end, ""},
		"empty boundary":      {`multipart/form-data; boundary=""`, model + end, ""},
		"another boundary":    {"multipart/form-data; boundary=cur", model + end, ""},
		"broken content type": {"multipart/form-data; boundary=cut; boundary=cur", model + end, ""},
		"long content type":   {formType + "; x=" + strings.Repeat("x", 1<<10), model + end, ""},
		"another multipart":   {"multipart/mixed; boundary=cut", model + end, ""},
		"JSON after all":      {formType, `{"model":"whisper"}`, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{audioPath, "/anything", chatPath} {
				got := messages.Request{Salt: "before"}
				err := parser.Parse(path, tc.contentType, "", []byte(tc.body), &got)
				if err != nil || got.Model != tc.want || got.Salt != "before" || got.Usage {
					t.Errorf("%s: got %+v, error %v, want model %q and nothing else", path, got, err, tc.want)
				}
			}
			var got messages.Request
			err := parser.Parse(audioPath, tc.contentType, "gzip", encoded([]byte(tc.body), "gzip"), &got)
			if limit := max(64<<10, 100*len(encoded([]byte(tc.body), "gzip"))); err != nil || got.Model != tc.want &&
				len(tc.body) <= limit {
				t.Errorf("compressed: model %q, error %v, want %q", got.Model, err, tc.want)
			}
		})
	}
}

// What a part holds is stepped over, not copied.
func TestFormAllocations(t *testing.T) {
	costs := map[int]float64{}
	for _, n := range []int{1 << 10, 8 << 20} {
		body := []byte(file("file", strings.Repeat("x", n)) + field("model", "whisper") + "--cut--\r\n")
		var got messages.Request
		costs[n] = testing.AllocsPerRun(5, func() {
			if err := parser.Parse(audioPath, formType, "", body, &got); err != nil || got.Model != "whisper" {
				t.Fatal(got.Model, err)
			}
		})
	}
	if small, large := costs[1<<10], costs[8<<20]; small != large || small > 60 {
		t.Errorf("%v allocations with a file of 1 KiB, %v with one of 8 MiB; want the same, at most 60", small, large)
	}
}

// modelByLibrary is what mime/multipart finds; false = it refuses the form.
func modelByLibrary(contentType string, body []byte) (model string, ok bool) {
	_, parameters, err := mime.ParseMediaType(contentType)
	if err != nil || parameters["boundary"] == "" {
		return "", false
	}
	r := multipart.NewReader(bytes.NewReader(body), parameters["boundary"])
	for {
		p, err := r.NextRawPart()
		if err == io.EOF { //nolint:errorlint // wrapped, it is that of a form which is cut
			return model, true
		}
		if err != nil {
			return "", false
		}
		value, err := io.ReadAll(p)
		if err != nil {
			return "", false
		}
		_, disposition, _ := mime.ParseMediaType(p.Header.Get("Content-Disposition"))
		if _, isFile := disposition["filename"]; p.FormName() == "model" && !isFile {
			model = string(value)
		}
	}
}

// FuzzForm holds the reader of forms against mime/multipart.
func FuzzForm(f *testing.F) {
	model, end := field("model", "whisper"), "--cut--\r\n"
	for _, body := range []string{
		model + end, file("file", "RIFF\r\n--cu\r\n--cutlery") + model + end, "before\r\n" + model +
			field("model", "b") + end + "behind",
		"--cut\r\n\r\n--cut--", "--cut\r\n\r\n\r\n--cut  \r\nContent-Disposition: form-data;\r\n name=model\r\n\r\n" +
			"--cut--\r\n", "--cut--", "\r\n--cut\r\n",
		"--cut\r\nContent-Disposition: form-data; name*=utf-8''mod%65l\r\n\r\nx\r\n--cut--\r\n",
	} {
		f.Add(formType, []byte(body))
	}
	f.Add(`multipart/form-data; boundary="a b"`, []byte("--a b\r\n"))
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		before := bytes.Clone(body)
		var got messages.Request
		if err := parser.Parse(audioPath, contentType, "", body, &got); err != nil {
			t.Fatalf("error %v, want none", err)
		}
		if !bytes.Equal(before, body) {
			t.Fatal("the body was written to")
		}
		// the library takes bare line feeds
		crlf := bytes.Count(body, []byte("\n")) == bytes.Count(body, []byte("\r\n"))
		media, _, _ := strings.Cut(contentType, ";")
		if !crlf || !strings.EqualFold(strings.TrimSpace(media), "multipart/form-data") || len(contentType) > 1<<10 ||
			len(body) > 8<<10 {
			return
		}
		want, ok := modelByLibrary(contentType, body)
		if ok && len(want) <= 1024 && got.Model != string([]rune(want)) {
			t.Fatalf("%s\n%q\nmodel %q, want %q", contentType, body, got.Model, want)
		}
	})
}

// FuzzEncoded holds decoding against itself: what is encoded is read like what is not, and anything is taken without an
// error that a plain body would not have.
func FuzzEncoded(f *testing.F) {
	for _, text := range []string{`{"model":"m"}`, chatBody(), `{`, "", model32K()} {
		for coding := range encoders {
			f.Add([]byte(text), coding)
			f.Add(encoded([]byte(text), coding), coding)
			f.Add(encoded([]byte(text), coding, "gzip"), coding+", x-gzip,identity")
		}
	}
	names := []string{"gzip", "br", "zstd"}
	p := parsers.New(parsers.Config{Seed: seed, MaxDecodedBytes: 1 << 20})
	f.Fuzz(func(t *testing.T, body []byte, header string) {
		before := bytes.Clone(body)
		var got messages.Request
		err := p.Parse(chatPath, jsonType, header, body, &got)
		if err != nil && header != "" && strings.Trim(strings.ToLower(header), "identy, \t") != "" &&
			!strings.HasPrefix(err.Error(), "once decoded, body is not") {
			t.Fatalf("%q: error %v", header, err)
		}
		if !bytes.Equal(before, body) {
			t.Fatal("the body was written to")
		}
		if len(body) > 64<<10 {
			return
		}
		var plain, decoded messages.Request
		plainErr := p.Parse(chatPath, jsonType, "", body, &plain)
		name := names[len(body)%len(names)]
		decodedErr := p.Parse(chatPath, jsonType, name, encoded(body, name), &decoded)
		if (plainErr == nil) != (decodedErr == nil) || plain.Model != decoded.Model ||
			plain.PromptTokens != decoded.PromptTokens || plain.Blocks.Len() != decoded.Blocks.Len() {
			t.Fatalf("%s of %q: %+v, %v; plain %+v, %v", name, body, decoded, decodedErr, plain, plainErr)
		}
	})
}

func model32K() string {
	return `{"model":"m","x":"` + strings.Repeat("0123456789abcdef", 2<<10) + `"}`
}
