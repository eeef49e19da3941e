package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// viewOf is an overview as it comes from the pages' JSON.
func viewOf(t *testing.T, endpoints, newest, unserved []string) *overview {
	t.Helper()
	v := &overview{addr: "http://127.0.0.1:9090", hint: "q ends", at: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)}
	err := errors.Join(json.Unmarshal([]byte(`{"endpoints": [`+strings.Join(endpoints, ",")+`]}`), &v.endpoints),
		json.Unmarshal([]byte(`{"requests": [`+strings.Join(newest, ",")+`]}`), &v.newest),
		json.Unmarshal([]byte(`{"requests": [`+strings.Join(unserved, ",")+`]}`), &v.unserved))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func poolOf(n int, but map[int]string) (list []string) {
	for i := range n {
		list = append(list,
			fmt.Sprintf(`{"name": "vllm-%d", "address": "10.0.0.%d:8000", "scraped": true, "inflight_requests": %d%s}`,
				i, i, i%7, but[i]))
	}
	return list
}

func aged(n int, seconds float64, rest string) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf(`{"id": "ab-%d", "age_seconds": %f%s}`, i, seconds*float64(i+1), rest))
	}
	return list
}

func TestSumsOfTheOverview(t *testing.T) {
	ejected, degraded, unread := `, "outlier": {"state": "ejected", "cause": "connect-failed"}`,
		`, "outlier": {"state": "degraded", "cause": "overload"}`, `, "failing": true`
	first := func(seconds float64) string { return fmt.Sprintf(`, "first_token_seconds": %f`, seconds) }
	for name, c := range map[string]struct {
		endpoints, newest []string
		want              []string
	}{
		"nothing": {nil, nil, []string{"0 endpoints", "0 requests in flight", "0 requests/s",
			"first token: none seen within a minute"}},
		"one": {poolOf(1, nil), aged(1, 1, ""), []string{"1 endpoint", "0 requests in flight",
			"0.1 requests/s", "first token: none seen within a minute"}},
		"sick": {poolOf(8, map[int]string{1: ejected, 2: ejected, 3: degraded, 4: unread}), nil,
			[]string{"8 endpoints, 1 degraded, 2 ejected, 1 without metrics", "21 requests in flight"}},
		"some": {nil, append(aged(50, 0.1, first(0.2)), aged(3, 20, first(4))...),
			[]string{"5 requests/s", "first token after 200ms, 95 % within 4.00s"}},
		"more than are looked at": {nil, aged(countedRequests, 0.01, first(0.2)),
			[]string{"100 requests/s", "first token after 200ms, 95 % within 200ms"}},
		"long ago": {nil, aged(5, 61, first(0.2)), []string{"0 requests/s", "first token: none seen within a minute"}},
	} {
		v := viewOf(t, c.endpoints, c.newest, nil)
		got := append(v.sums(), v.rate(), v.firstToken())
		for _, want := range c.want {
			if !slices.Contains(got, want) {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
	}
}

// However small the screen is, no line is longer and no more lines are drawn; and what is not healthy is seen.
func TestOverviewFitsTheScreen(t *testing.T) {
	sick := `, "outlier": {"state": "ejected", "cause": "connect-failed"}`
	refused := aged(5, 1, `, "status": 503, "reason": "overloaded", "model": "a-model-with-a-long-name-indeed"`)
	v := viewOf(t, poolOf(40, map[int]string{37: sick}), aged(9, 1, ""),
		refused).withProblem(errors.New("nothing listens on 127.0.0.1:9090: is Signalbox running?"))
	for _, size := range [][2]int{{200, 100}, {120, 30}, {80, 24}, {80, 12}, {40, 10}, {20, 5}, {1, 1}, {3, 2}} {
		lines := v.lines(size[0], size[1])
		text := strings.Join(lines, "\n")
		if len(lines) > size[1] || slices.ContainsFunc(lines,
			func(l string) bool { return utf8.RuneCountInString(l) > size[0] }) {
			t.Errorf("%v: %d lines do not fit\n%s", size, len(lines), text)
		}
		if size[1] >= 12 && (!strings.Contains(text, "10.0.0.37:8000") || !strings.Contains(text, "no answer for")) {
			t.Errorf("%v: the endpoint that is ejected, or the problem, is not seen\n%s", size, text)
		}
		if more := strings.Contains(text, "more, which signalbox endpoints lists"); size[0] >= 80 &&
			more != (size[1] < 50) {
			t.Errorf("%v: says that there are more: %v\n%s", size, more, text)
		}
		if size[1] >= 24 && strings.Count(text, "503 overloaded") < leastUnserved {
			t.Errorf("%v: what was not served is not seen\n%s", size, text)
		}
	}
}

func TestProblemLastsFromItsBeginning(t *testing.T) {
	v := viewOf(t, nil, nil, nil).withProblem(errors.New("a"))
	v.since = v.since.Add(-5 * time.Second)
	if text := strings.Join(v.withProblem(errors.New("b")).lines(120, 30), "\n"); !strings.Contains(text,
		"no answer for 5s") || !strings.Contains(text, "| b") {
		t.Errorf("want the newest problem since 5 s in\n%s", text)
	}
}
