package modelserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/messages"
)

// Extraction is an attribute that is taken from a metrics page.
type Extraction struct {
	Attribute, Producer string
	Engine              string // only from pages of this engine; "" = from all
	Metric              string
	Labels              []Label // that a sample must have to count
	Aggregation         Aggregation
	Per                 string // the metric to divide by, for Ratio; its samples must have the labels, too
	// of a JSON document, in place of all of these: the path of a number, true or false; a key {endpoint} stands for
	// the endpoint's address, or its name
	Field string

	By attributes.Extractor // in place of all of these; nil = none. Those of one extractor follow each other
	At int                  // of its attributes
}

// Label is one label of a series.
type Label struct{ Name, Value string }

// Aggregation makes one value of the samples that count.
type Aggregation uint8

const (
	Last  Aggregation = iota // the last one on the page
	Sum                      // of all
	Max                      // the largest
	Rate                     // of the sum of all, which are counters: the increase per second
	Ratio                    // of the sum of all to that of Per; absent if that is 0
)

func (e *Extraction) equal(other Extraction) bool {
	return e.Attribute == other.Attribute && e.Producer == other.Producer && e.Metric == other.Metric &&
		e.Engine == other.Engine && e.Field == other.Field && slices.Equal(e.Labels, other.Labels) &&
		e.Aggregation == other.Aggregation &&
		e.Per == other.Per && e.By == other.By && e.At == other.At
}

// ofEngine returns those of a list that pages of an engine have.
func ofEngine(list []Extraction, engine string) []Extraction {
	other := func(e Extraction) bool { return e.Engine != "" && e.Engine != engine }
	if !slices.ContainsFunc(list, other) {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), other)
}

// contents are those of a metrics page, or of a JSON document.
type contents struct {
	page     []byte
	document bool
	root     any // of a document
}

// document returns the contents of a document, decoded if a field of it is wanted.
func document(page []byte, list []Extraction) (c contents, err error) {
	c = contents{page: page, document: true}
	if slices.ContainsFunc(list, func(e Extraction) bool { return !byOthers(e) }) {
		if c.root, err = decoded(page); err != nil {
			err = fmt.Errorf("document: %w", err)
		}
	}
	return c, err
}

// decoded returns what JSON text says, or what is wrong with it and where.
func decoded(text []byte) (root any, err error) {
	err = json.Unmarshal(text, &root)
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		err = fmt.Errorf("%w, at byte %d", err, e.Offset)
	}
	return root, err
}

// taken returns the attributes that are an endpoint's.
func (c *contents) taken(list []Extraction, of messages.EndpointSpec) (messages.List[messages.Extracted], error) {
	own, byThem := list, []messages.Extracted(nil)
	if slices.ContainsFunc(list, byOthers) {
		others := slices.DeleteFunc(slices.Clone(list), func(e Extraction) bool { return !byOthers(e) })
		var err error
		if byThem, err = extractBy(c.page, others); err != nil {
			return messages.List[messages.Extracted]{}, err
		}
		own = slices.DeleteFunc(slices.Clone(list), byOthers)
	}
	if c.document {
		return messages.TakeList(append(extractFields(c.root, own, of), byThem...)), nil
	}
	return messages.TakeList(append(extract(c.page, own), byThem...)), nil
}

func byOthers(e Extraction) bool { return e.By != nil }

// extractBy asks extractors of other modules, each once. A value that is no finite number is left out.
func extractBy(page []byte, list []Extraction) (all []messages.Extracted, err error) {
	var values []float64
	for i, e := range list {
		if i == 0 || list[i-1].By != e.By {
			values = slices.Repeat([]float64{math.NaN()}, len(e.By.Emits()))
			if err := e.By.Extract(page, values); err != nil {
				return nil, fmt.Errorf("%s: %w", e.Producer, err)
			}
		}
		if value := values[e.At]; !math.IsNaN(value) && !math.IsInf(value, 0) {
			all = append(all, messages.Extracted{Attribute: e.Attribute, Producer: e.Producer, Value: value})
		}
	}
	return all, nil
}

// extract reads attributes from a page. What the page does not have is left out.
func extract(page []byte, list []Extraction) []messages.Extracted {
	if len(list) == 0 {
		return nil
	}
	found := make([]aggregate, len(list))
	for len(page) > 0 {
		end := bytes.IndexByte(page, '\n')
		if end < 0 {
			break // it may have been cut off
		}
		for i := range list {
			found[i].look(&list[i], page[:end])
		}
		page = page[end+1:]
	}
	var all []messages.Extracted
	for i, e := range list {
		if value, ok := found[i].value(&e); ok {
			all = append(all, messages.Extracted{
				Attribute: e.Attribute, Producer: e.Producer, Value: value, Total: e.Aggregation == Rate,
			})
		}
	}
	return all
}

// extractFields reads attributes from a JSON document. What it does not have, or not as a number, is left out.
func extractFields(root any, list []Extraction, of messages.EndpointSpec) (all []messages.Extracted) {
	for _, e := range list {
		if value, ok := field(root, e.Field, of); ok {
			all = append(all, messages.Extracted{Attribute: e.Attribute, Producer: e.Producer, Value: value})
		}
	}
	return all
}

// ofEndpoint is a key that stands for the endpoint's own.
const ofEndpoint = "{endpoint}"

// field returns the number at a path of keys and indexes with dots between them; true is 1, and false 0.
func field(at any, path string, of messages.EndpointSpec) (value float64, ok bool) {
	for key := range strings.SplitSeq(path, ".") {
		switch x := at.(type) {
		case map[string]any:
			at = member(x, key, of)
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(x) {
				return 0, false
			}
			at = x[i]
		default:
			return 0, false
		}
	}
	switch x := at.(type) {
	case float64:
		return x, true
	case bool:
		if x {
			value = 1
		}
		return value, true
	}
	return 0, false
}

// member returns what an object has under a key.
func member(of map[string]any, key string, endpoint messages.EndpointSpec) any {
	if key != ofEndpoint {
		return of[key]
	}
	if its, ok := of[string(endpoint.Address)]; ok {
		return its
	}
	if its, ok := of[endpoint.Name]; ok {
		return its
	}
	return of[podOf(endpoint.Name)]
}

// podOf returns the name of an endpoint's pod, or "" if the endpoint is not named after one.
func podOf(endpoint string) string {
	const rank = "-rank-"
	at := strings.LastIndex(endpoint, rank)
	if at < 0 {
		return ""
	}
	if _, err := strconv.ParseUint(endpoint[at+len(rank):], 10, 8); err != nil {
		return ""
	}
	return endpoint[:at]
}

// aggregate is what was found of one attribute so far.
type aggregate struct {
	of, per   tally
	last, top float64
}

// look takes a line if it is a sample of the attribute. A value that is no finite number counts as absent.
func (a *aggregate) look(e *Extraction, line []byte) {
	line = skipBlanks(line)
	inside := len(line) > 0 && line[0] == '{' // the name is, in quotes
	isOf, isPer := startsWith(line, e.Metric), e.Per != "" && startsWith(line, e.Per)
	if !inside && !isOf && !isPer {
		return
	}
	s, ok := parseSample(line)
	if !ok || !s.labels.have(e.Labels) {
		return
	}
	value, err := strconv.ParseFloat(string(s.value), 64)
	if err != nil || math.IsNaN(value) || math.IsInf(value, 0) {
		return
	}
	if string(s.name) == e.Metric {
		if a.of.samples == 0 || value > a.top {
			a.top = value
		}
		a.last = value
		a.of.sum += value
		a.of.samples++
	}
	if string(s.name) == e.Per {
		a.per.sum += value
		a.per.samples++
	}
}

// value returns what the samples come to, and whether they come to anything.
func (a *aggregate) value(e *Extraction) (value float64, ok bool) {
	switch e.Aggregation {
	case Last:
		value = a.last
	case Max:
		value = a.top
	case Sum, Rate:
		value = a.of.sum
	case Ratio:
		if a.per.samples == 0 || a.per.sum == 0 {
			return 0, false
		}
		value = a.of.sum / a.per.sum
	}
	return value, a.of.samples > 0 && !math.IsInf(value, 0)
}
