package records

import (
	"regexp"
	"slices"
	"strings"

	"github.com/signalbox-epp/signalbox/messages"
)

// responsePrefixes are the prefixes of response ids. vLLM puts each of them but resp_ before the request's
// x-request-id. What follows resp_, and all of llama.cpp's ids, the server makes by itself.
var responsePrefixes = []string{"chatcmpl-", "cmpl-", "embd-", "resp_"}

// CutResponsePrefix returns an id without the prefix of response ids; false = it has none.
func CutResponsePrefix(id string) (string, bool) {
	for _, p := range responsePrefixes {
		if rest, ok := strings.CutPrefix(id, p); ok && rest != "" {
			return rest, true
		}
	}
	return id, false
}

// IsResponseID reports whether an id has the prefix of a response id.
func IsResponseID(id []byte) bool {
	for _, p := range responsePrefixes {
		if len(id) > len(p) && string(id[:len(p)]) == p {
			return true
		}
	}
	return false
}

// IsMadeOf reports whether the id of a response is a prefix and the request's x-request-id, as vLLM makes it.
func IsMadeOf(id []byte, clientID string) bool {
	return len(id) > len(clientID) && string(id[len(id)-len(clientID):]) == clientID &&
		slices.Contains(responsePrefixes, string(id[:len(id)-len(clientID)]))
}

// engineSuffix is what vLLM's engine appends to an id in its log: the number of the prompt, and eight random digits.
var engineSuffix = regexp.MustCompile(`^(.+?)(?:[-_][0-9]+)?-[0-9a-f]{8}$|^(.+)[-_][0-9]+$`)

// IDReadings returns the labels under which the request that an id names may be found. In the first list the id is
// taken as it stands, and as the id of a response. In the second it is taken as an id in vLLM's log, which may belong
// to another request, so that the second list counts only if the first finds nothing.
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

// HasID reports whether one of the ids is the client's or the response's. It is true for an empty list.
func HasID(r *messages.Record, ids messages.List[string]) bool {
	return ids.Len() == 0 || r.ClientID != "" && holds(ids, r.ClientID) || r.ResponseID != "" &&
		holds(ids, r.ResponseID)
}

// OfFirstReading returns the records that have an id of the first list of IDReadings, or all if none has.
func OfFirstReading(found []messages.Record, first []string) []messages.Record {
	ids := messages.ListOf(first...)
	if !slices.ContainsFunc(found, func(r messages.Record) bool { return HasID(&r, ids) }) {
		return found
	}
	return slices.DeleteFunc(found, func(r messages.Record) bool { return !HasID(&r, ids) })
}
