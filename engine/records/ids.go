package records

import (
	"regexp"
	"slices"
	"strings"

	"github.com/signalbox-epp/signalbox/messages"
)

// responsePrefixes are what an id of a response begins with. vLLM puts each but resp_ before the request's
// x-request-id; the id behind resp_ is its own, and so are all of llama.cpp.
var responsePrefixes = []string{"chatcmpl-", "cmpl-", "embd-", "resp_"}

// CutResponsePrefix gives what follows the prefix of a response's id; false = it has none.
func CutResponsePrefix(id string) (string, bool) {
	for _, p := range responsePrefixes {
		if rest, ok := strings.CutPrefix(id, p); ok && rest != "" {
			return rest, true
		}
	}
	return id, false
}

// IsResponseID reports whether an id begins as that of a response does.
func IsResponseID(id []byte) bool {
	for _, p := range responsePrefixes {
		if len(id) > len(p) && string(id[:len(p)]) == p {
			return true
		}
	}
	return false
}

// IsMadeOf reports whether the id of a response is what vLLM makes of a request's x-request-id.
func IsMadeOf(id []byte, clientID string) bool {
	return len(id) > len(clientID) && string(id[len(id)-len(clientID):]) == clientID &&
		slices.Contains(responsePrefixes, string(id[:len(id)-len(clientID)]))
}

// engineSuffix is what vLLM's engine appends to an id in its log: the number of the prompt, and eight random digits.
var engineSuffix = regexp.MustCompile(`^(.+?)(?:[-_][0-9]+)?-[0-9a-f]{8}$|^(.+)[-_][0-9]+$`)

// IDReadings are what an id may be of a request that it names, as labels: those of the first list mean it as it stands,
// or as the id of a response; the second is for an id of vLLM's log, which may be another's,
// and counts only if the first finds nothing.
func IDReadings(id string) (first, second []string) {
	first = []string{Label(id)}
	bare, prefixed := CutResponsePrefix(id)
	if !prefixed {
		return first, nil
	}
	if first = append(first, Label(bare)); first[0] == first[1] {
		first = first[:1]
	}
	if m := engineSuffix.FindStringSubmatch(bare); m != nil {
		second = []string{Label(m[1] + m[2])}
	}
	return first, second
}

// HasID reports whether the client or the model server knows a request by one of the ids.
// Every record meets an empty list.
func HasID(r *messages.Record, ids messages.List[string]) bool {
	return ids.Len() == 0 || r.ClientID != "" && holds(ids, r.ClientID) || r.ResponseID != "" &&
		holds(ids, r.ResponseID)
}

// OfFirstReading keeps the records that the first readings of an id find, or, if they find none, all.
func OfFirstReading(found []messages.Record, first []string) []messages.Record {
	ids := messages.ListOf(first...)
	if !slices.ContainsFunc(found, func(r messages.Record) bool { return HasID(&r, ids) }) {
		return found
	}
	return slices.DeleteFunc(found, func(r messages.Record) bool { return !HasID(&r, ids) })
}
