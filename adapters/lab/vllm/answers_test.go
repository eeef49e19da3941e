package vllm

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

// onPurpose are the requests that a real server answers otherwise, and why the simulated one does not follow.
var onPurpose = map[string]string{
	"content_null":            "vLLM lists what each of its eight schemas says; ours names one",
	"role_missing":            "likewise",
	"part_unknown":            "likewise",
	"temperature_negative":    "sampling parameters are accepted and without effect",
	"token_out_of_vocabulary": "the vocabulary has no end: tokens are hashes",
	"load_path_unknown":       "adapter paths are not opened",
	"one_model":               "OpenAI has it, vLLM does not",
	"responses":               "vLLM's answer of one token had no text, ours has a word",
	"reset_prefix_cache":      "vLLM has it in its development mode, ours always",
}

// exchange is a request and what a real server answered.
type exchange struct {
	what, contentType, body string
	want                    reply
}

// exchanges reads the archive of a real server's answers.
func exchanges(t *testing.T) map[string]exchange {
	t.Helper()
	archive, err := txtar.ParseFile("testdata/vllm-0.32.0-requests.txtar")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]exchange{}
	for _, f := range archive.Files {
		request, answer, _ := strings.Cut(string(f.Data), "\n\n")
		answer = strings.TrimPrefix(answer, "\n") // of a request without a body
		part, lines := strings.SplitN(request+"\n", "\n", 3), strings.SplitN(answer, "\n", 4)
		x := exchange{what: part[0], contentType: part[1], body: strings.TrimSpace(part[2]),
			want: reply{header: http.Header{}}}
		if n, value, ok := numbers(x.body); ok {
			x.body = strings.Replace(x.body, fmt.Sprintf("%d x %d", n, value),
				"["+strings.Repeat(fmt.Sprint(value)+",", n-1)+fmt.Sprint(value)+"]", 1)
		}
		if _, err := fmt.Sscan(lines[0], &x.want.status); err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		x.want.header.Set("Content-Type", lines[1])
		x.want.header.Set("Allow", lines[2])
		x.want.body = strings.TrimSpace(lines[3])
		all[f.Name] = x
	}
	return all
}

// numbers finds "N x VALUE", which stands for a list.
func numbers(body string) (n, value int, ok bool) {
	_, rest, ok := strings.Cut(body, `"prompt":`)
	if !ok || !strings.Contains(rest, " x ") {
		return 0, 0, false
	}
	_, err := fmt.Sscanf(rest, "%d x %d", &n, &value)
	return n, value, err == nil
}

// differs says how an answer differs from the real one: errors by their text, others by their shape.
func differs(t *testing.T, got, want reply) string {
	t.Helper()
	where := got.header.Get("Allow") + strings.TrimPrefix(got.header.Get("Location"), "http://"+
		got.header.Get("x-served-by"))
	type facts struct {
		Status      int
		ContentType string
		Where       string
		Body        any
	}
	g := facts{got.status, got.header.Get("Content-Type"), where, strings.TrimSpace(got.body)}
	w := facts{want.status, want.header.Get("Content-Type"), want.header.Get("Allow"), want.body}
	if want.status == 200 && got.status == 200 {
		if strings.HasPrefix(w.ContentType, "text/event-stream") {
			g.Body, w.Body = events(t, got.body), events(t, want.body)
		} else {
			g.Body, w.Body = shape(t, got.body), shape(t, want.body)
		}
	}
	return cmp.Diff(w, g)
}

func TestOddRequestsAreAnsweredAsByVLLM(t *testing.T) {
	s := start(t, func(c *Config) {
		c.MaxLoRAs, c.Adapters, c.PromptTokensDetails = 2, []string{"lora-a", "lora-b"},
			true
	})
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	all := exchanges(t)
	for name, x := range all {
		r := request(t, s, x.what, x.body)
		r.Header.Set("Content-Type", x.contentType)
		diff := differs(t, send(t, client, r), x.want)
		why, known := onPurpose[name]
		if diff != "" && !known {
			t.Errorf("%s: %s %.200s (-vLLM +ours):\n%s", name, x.what, x.body, diff)
		}
		if diff == "" && known {
			t.Errorf("%s is as vLLM's, though it differs on purpose: %s", name, why)
		}
	}
	for name := range onPurpose {
		if _, known := all[name]; !known {
			t.Errorf("%s differs on purpose, and is not in the archive", name)
		}
	}
}
