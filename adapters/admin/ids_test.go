package admin

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/signalbox-epp/signalbox/messages"
)

// What is not found is told with what to look for in its place, and nothing of an id harms a terminal.
func TestUnknownIDsSayWhatToLookFor(t *testing.T) {
	const instead = "look for the x-request-id of the answer's headers, _request_id in the OpenAI client, or its " +
		"x-signalbox-request-id"
	for id, want := range map[string]string{
		"resp_0123456789abcdef": "whose response has the id resp_0123456789abcdef: model servers make such ids by " +
			"themselves, and Signalbox knows one only if it saw",
		"chatcmpl-mine": "with x-request-id mine, of which vLLM would have made chatcmpl-mine: other model servers " +
			"make such ids by themselves",
		"cmpl-mine":   "with x-request-id mine, of which vLLM would have made cmpl-mine: ",
		"cmpl-%1B[2J": `with x-request-id \x1b[2J, of which vLLM would have made cmpl-\x1b[2J: `,
	} {
		w := get(config(answering()), "/debug/requests/"+id)
		var f failure
		if err := json.Unmarshal(w.Body.Bytes(), &f); err != nil || w.Code != http.StatusNotFound {
			t.Fatalf("%s: HTTP %d %s", id, w.Code, w.Body)
		}
		if !strings.Contains(f.Error, want) || !strings.Contains(f.Error, instead) {
			t.Errorf("%s: %s\nwant %s and %s", id, f.Error, want, instead)
		}
	}
	rec := answering()
	rec.answer.Unasked = 3
	if w := get(config(rec), "/debug/requests/mine"); !strings.Contains(w.Body.String(),
		"incomplete: 3 requests that run were not looked at") {
		t.Errorf("of 3 requests that were not asked: %s", w.Body)
	}
}

// An id of a response means the request of which it was made; only if there is none,
// the one that it names in a log of vLLM.
func TestIDsOfResponsesAreFound(t *testing.T) {
	records := []messages.Record{
		{Request: 1, ClientID: "a-0"}, {Request: 2, ClientID: "a"}, {Request: 3, ClientID: "cmpl-a-0"},
		{Request: 4, ResponseID: "cmpl-a-0"},
	}
	for id, want := range map[string][]string{
		"cmpl-a-0": {instance + "1", instance + "3", instance + "4"}, "chatcmpl-a": {instance + "2"},
		"cmpl-a-7": {instance + "2"},
	} {
		var found []messages.Record
		for _, r := range records { // as the recorder does
			if id != "cmpl-a-0" && r.ClientID != "a" {
				continue
			}
			found = append(found, r)
		}
		w := get(config(answering(found...)), "/debug/requests/"+id+"?format=json")
		var page struct{ Requests []struct{ ID string } }
		if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range page.Requests {
			got = append(got, r.ID)
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s finds %v, want %v", id, got, want)
		}
	}
}

// The id that a model server made is shown, where it is known.
func TestResponseIDIsShown(t *testing.T) {
	cfg := config(answering(messages.Record{Request: 1, ClientID: "mine", ResponseID: "resp_1"}))
	if text := get(cfg, "/debug/requests/resp_1?format=text").Body.String(); !strings.Contains(text,
		"response id   resp_1\n") {
		t.Errorf("the page does not show it:\n%s", text)
	}
	if text := get(cfg, "/debug/requests/resp_1?format=json").Body.String(); !strings.Contains(text,
		`"response_id": "resp_1"`) {
		t.Errorf("the JSON does not show it: %s", text)
	}
	cfg = config(answering(messages.Record{Request: 1, ClientID: "mine"}))
	if text := get(cfg, "/debug/requests/mine?format=text").Body.String(); strings.Contains(text, "response id") {
		t.Errorf("an id is shown where none is known:\n%s", text)
	}
}
