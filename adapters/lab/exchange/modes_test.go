package exchange

import (
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
)

type walked struct {
	steps    []string
	found    []Rule
	fatal    bool
	complete bool
}

func testDirections(t *testing.T, mode directionState, tests map[string]walked) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := mode
			found, fatal := walk(&d, test.steps...)
			if diff := cmp.Diff(test.found, found); diff != "" || fatal != test.fatal || d.complete() != test.complete {
				t.Errorf("mode %+v, steps %v: fatal %v, complete %v, rules (-want +got):\n%s", d.mode, test.steps,
					fatal, d.complete(), diff)
			}
		})
	}
}

func TestNoBodyDirection(t *testing.T) {
	testDirections(t, directionState{}, map[string]walked{
		"headers":         {steps: []string{"H", ">h"}, complete: true},
		"headers and end": {steps: []string{"h", ">h"}, complete: true},
		"replaced":        {steps: []string{"H", ">r"}, complete: true},
		"headers twice": {steps: []string{"H", ">h", ">h"}, found: []Rule{DuplicateHeaders}, fatal: true,
			complete: true},
		"streamed body": {steps: []string{"H", ">h", ">e"}, found: []Rule{StreamedBody}, fatal: true,
			complete: true},
		"plain body": {steps: []string{"H", ">h", ">p"}, found: []Rule{BodyNotSent}, fatal: true, complete: true},
		"trailers": {steps: []string{"H", ">h", ">t"}, found: []Rule{TrailersNotSent}, fatal: true,
			complete: true},
		"nothing answered": {steps: []string{"H"}},
	})
	testDirections(t, directionState{mode: Mode{Trailers: true}}, map[string]walked{
		"trailers":                {steps: []string{"H", ">h", "T", ">t"}, complete: true},
		"trailers not answered":   {steps: []string{"H", ">h", "T"}},
		"trailers before headers": {steps: []string{"H", "T", ">t"}, found: []Rule{TrailersBeforeHeaders}, fatal: true},
		"trailers twice": {steps: []string{"H", ">h", "T", ">t", ">t"}, found: []Rule{TrailersNotSent},
			fatal: true, complete: true},
	})
}

func TestStreamedDirection(t *testing.T) {
	testDirections(t, directionState{mode: Mode{Body: Streamed, Trailers: true}}, map[string]walked{
		"an answer a chunk":    {steps: []string{"H", ">h", "B", "B", "E", ">p", ">p", ">p"}, complete: true},
		"one by one":           {steps: []string{"H", ">h", "B", ">p", "E", ">p"}, complete: true},
		"an answer is missing": {steps: []string{"H", ">h", "B", "E", ">p"}},
		"an answer too many": {steps: []string{"H", ">h", "B", "E", ">p", ">p", ">p"}, found: []Rule{AfterEnd},
			fatal: true, complete: true},
		"too many amid the body": {steps: []string{"H", ">h", "B", ">p", ">p"}, found: []Rule{BodyNotSent},
			fatal: true},
		"trailers": {steps: []string{"H", ">h", "B", ">p", "T", ">t"}, complete: true},
		"trailers before body": {steps: []string{"H", ">h", "B", "T", ">t"}, found: []Rule{TrailersBeforeBody},
			fatal: true},
		"body answer at trailers": {steps: []string{"H", ">h", "B", ">p", "T", ">p"}, found: []Rule{AfterEnd},
			fatal: true},
		"streamed_response": {steps: []string{"H", ">h", "B", ">b"}, found: []Rule{StreamedBody}, fatal: true},
		"changed headers":   {steps: []string{"H", ">h", "E", ">x"}, found: []Rule{IgnoredField}, complete: true},
	})
	testDirections(t, directionState{mode: Mode{Body: Streamed}}, map[string]walked{
		"without waiting":        {steps: []string{"H", "B", "E", ">h", ">p", ">p"}, complete: true},
		"body is answered first": {steps: []string{"H", "E", ">p"}, found: []Rule{BodyBeforeHeaders}, fatal: true},
		"it changes nothing": {steps: []string{"H", "B", "E", ">h", ">x", ">p"}, found: []Rule{IgnoredField},
			complete: true},
		"streamed on the last": {steps: []string{"H", ">h", "B", "E", ">p", ">e"}, found: []Rule{StreamedBody},
			complete: true},
		"streamed on all": {steps: []string{"H", ">h", "B", "E", ">e"}, found: []Rule{StreamedBody}, fatal: true},
	})
	testDirections(t, directionState{mode: Mode{Body: Streamed, SkipHeaders: true}}, map[string]walked{
		"body alone":      {steps: []string{"B", "E", ">p", ">p"}, complete: true},
		"headers answer":  {steps: []string{"E", ">h"}, found: []Rule{DuplicateHeaders}, fatal: true},
		"nothing was yet": {steps: []string{">p"}, found: []Rule{WrongDirection}, fatal: true},
	})
}

func TestBufferedDirections(t *testing.T) {
	for _, body := range []Mode{{Body: Buffered, Trailers: true}, {Body: BufferedPartial, Trailers: true}} {
		testDirections(t, directionState{mode: body, hasLength: true}, map[string]walked{
			"headers, then the body":   {steps: []string{"H", ">h", "E", ">p"}, complete: true},
			"the body changes headers": {steps: []string{"H", ">h", "E", ">x"}, complete: true},
			"body and trailers":        {steps: []string{"H", ">h", "B", ">p", "T", ">t"}, complete: true},
			"trailers alone":           {steps: []string{"H", ">h", "T", ">t"}, complete: true},
			"no body":                  {steps: []string{"h", ">h"}, complete: true},
			"body not answered":        {steps: []string{"H", ">h", "E"}},
			"body answered too early":  {steps: []string{"H", ">p"}, found: []Rule{BodyBeforeHeaders}, fatal: true},
			"body answered twice": {steps: []string{"H", ">h", "E", ">p", ">p"}, found: []Rule{AfterEnd},
				fatal: true, complete: true},
			"streamed_response": {steps: []string{"H", ">h", "E", ">e"}, found: []Rule{StreamedBody},
				fatal: body.Body == Buffered, complete: body.Body != Buffered},
			"body answered at trailers": {steps: []string{"H", ">h", "T", ">p"}, found: []Rule{BodyBeforeTrailers},
				fatal: true},
		})
	}
	testDirections(t, directionState{mode: Mode{Body: Buffered}}, map[string]walked{
		"streamed_response without a length": {steps: []string{"H", ">h", "E", ">e"}, found: []Rule{StreamedBody},
			complete: true},
		"trailers are not sent": {steps: []string{"H", ">h", "B", ">p"}, complete: true},
	})
	testDirections(t, directionState{mode: Mode{Body: BufferedPartial, Trailers: true}}, map[string]walked{
		"cut body": {steps: []string{"H", ">h", "B", ">p"}, complete: true},
	})
	testDirections(t, directionState{mode: Mode{Body: Buffered, SkipHeaders: true}}, map[string]walked{
		"body alone":    {steps: []string{"E", ">p"}, complete: true},
		"late a change": {steps: []string{"E", ">x"}, found: []Rule{IgnoredField}, complete: true},
	})
	testDirections(t, directionState{id: Response, mode: Mode{Body: Buffered}}, map[string]walked{
		"route cache": {steps: []string{"H", ">h", "E", ">x"}, found: []Rule{IgnoredField}, complete: true},
	})
}

func TestGRPCDirection(t *testing.T) {
	testDirections(t, directionState{mode: Mode{Body: GRPC, Trailers: true}}, map[string]walked{
		"messages":        {steps: []string{"H", ">h", "B", "E", ">b", ">e"}, complete: true},
		"trailers":        {steps: []string{"H", ">h", "B", ">b", "T", ">t"}, complete: true},
		"plain body":      {steps: []string{"H", ">h", "B", ">p"}, found: []Rule{PlainBody}, fatal: true},
		"replaced":        {steps: []string{"H", ">r"}, found: []Rule{ReplaceInDuplex}, fatal: true},
		"changed headers": {steps: []string{"H", ">h", "B", ">x"}, found: []Rule{IgnoredField}},
	})
	flagged := func(s *extprocv3.StreamedBodyResponse) *extprocv3.BodyResponse {
		return &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: &extprocv3.BodyMutation{
			Mutation: &extprocv3.BodyMutation_StreamedResponse{StreamedResponse: s},
		}}}
	}
	tests := map[string]struct {
		body  Mode
		chunk *extprocv3.StreamedBodyResponse
		found []Rule
	}{
		"compressed message": {Mode{Body: GRPC},
			&extprocv3.StreamedBodyResponse{GrpcMessageCompressed: true}, nil},
		"end without a message": {Mode{Body: GRPC},
			&extprocv3.StreamedBodyResponse{EndOfStreamWithoutMessage: true}, []Rule{EarlyEnd}},
		"a message may be large": {Mode{Body: GRPC},
			&extprocv3.StreamedBodyResponse{Body: make([]byte, maxChunk+1)}, nil},
		"a chunk may not": {Mode{Body: Duplex},
			&extprocv3.StreamedBodyResponse{Body: make([]byte, maxChunk+1)}, []Rule{ChunkTooLarge}},
		"flags mean nothing elsewhere": {Mode{Body: Duplex},
			&extprocv3.StreamedBodyResponse{GrpcMessageCompressed: true}, []Rule{IgnoredField}},
	}
	for name, test := range tests {
		d := &directionState{mode: test.body}
		walk(d, "H", ">h", "B")
		var found []Rule
		for _, v := range d.gotBody(flagged(test.chunk)) {
			found = append(found, v.Rule)
		}
		if diff := cmp.Diff(test.found, found); diff != "" {
			t.Errorf("%s: rules (-want +got):\n%s", name, diff)
		}
	}
}

func TestJudgementsOnTheWholeStream(t *testing.T) {
	immediate := &extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_ImmediateResponse{ImmediateResponse: &extprocv3.ImmediateResponse{}},
	}
	headers := &extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{}},
	}
	tests := map[string]struct {
		config  Config
		answers []*extprocv3.ProcessingResponse
		found   []Rule
	}{
		"second immediate response": {answers: []*extprocv3.ProcessingResponse{immediate, immediate},
			found: []Rule{AfterImmediate}},
		"answer after a refusal": {answers: []*extprocv3.ProcessingResponse{immediate, headers},
			found: []Rule{AfterImmediate}},
		"answer in observability": {config: Config{Observe: true},
			answers: []*extprocv3.ProcessingResponse{headers}, found: []Rule{ObservedAnswer}},
		"refusal in observability": {config: Config{Observe: true},
			answers: []*extprocv3.ProcessingResponse{immediate}, found: []Rule{ObservedAnswer}},
		"timeout override": {answers: []*extprocv3.ProcessingResponse{{OverrideMessageTimeout: durationpb.New(1)}},
			found: []Rule{IgnoredField}},
		"metadata that is no struct": {config: Config{Receive: []string{"envoy.lb"}},
			answers: []*extprocv3.ProcessingResponse{{Response: headers.Response,
				DynamicMetadata: &structpb.Struct{
					Fields: map[string]*structpb.Value{"envoy.lb": structpb.NewStringValue("x")},
				}}}, found: []Rule{MetadataNamespace}},
		"the answer that was due": {answers: []*extprocv3.ProcessingResponse{headers}},
		"refusal although disallowed": {config: Config{DisableImmediate: true},
			answers: []*extprocv3.ProcessingResponse{immediate}, found: []Rule{ImmediateDisabled}},
	}
	for name, test := range tests {
		s := &Stream{config: test.config, received: map[string]*structpb.Struct{}}
		s.directions[Response].id = Response
		s.directions[Request].sentHeaders(false)
		var found []Rule
		for _, m := range test.answers {
			_, vs := s.judge(m)
			for _, v := range vs {
				found = append(found, v.Rule)
			}
		}
		if diff := cmp.Diff(test.found, found); diff != "" {
			t.Errorf("%s: rules (-want +got):\n%s", name, diff)
		}
	}
}

func TestBodyAnswersCarryWhatCounts(t *testing.T) {
	mutation := &extprocv3.HeaderMutation{RemoveHeaders: []string{"a"}}
	answer := func(m *extprocv3.BodyMutation) *extprocv3.ProcessingResponse {
		return &extprocv3.ProcessingResponse{
			Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{
				Response: &extprocv3.CommonResponse{HeaderMutation: mutation, BodyMutation: m},
			}},
		}
	}
	tests := map[string]struct {
		mode     Mode
		body     *extprocv3.BodyMutation
		heeded   bool
		replaced bool
		chunk    string
	}{
		"buffered": {mode: Mode{Body: Buffered}, heeded: true},
		"buffered, changed": {mode: Mode{Body: Buffered},
			body: &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_Body{Body: []byte("x")}}, heeded: true,
			replaced: true, chunk: "x"},
		"buffered, cleared": {mode: Mode{Body: Buffered},
			body: &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_ClearBody{ClearBody: true}}, heeded: true,
			replaced: true},
		"streamed":        {mode: Mode{Body: Streamed}},
		"without headers": {mode: Mode{Body: Buffered, SkipHeaders: true}},
	}
	for name, test := range tests {
		s := &Stream{received: map[string]*structpb.Struct{}}
		s.directions[Request].mode = test.mode
		if !test.mode.SkipHeaders {
			walk(&s.directions[Request], "H", ">h")
		}
		walk(&s.directions[Request], "E")
		a, _ := s.judge(answer(test.body))
		if (a.Mutation != nil) != test.heeded || a.Replaced != test.replaced || string(a.Chunk) != test.chunk ||
			!a.Ended {
			t.Errorf("%s: got %+v", name, a)
		}
	}
}

func TestConfigValidate(t *testing.T) {
	tests := map[string]struct {
		config Config
		good   bool
	}{
		"none":                     {Config{}, true},
		"skip":                     {Config{Request: Mode{SkipHeaders: true}}, true},
		"full duplex":              {Config{Request: FullDuplex(), Response: FullDuplex()}, true},
		"buffered":                 {Config{Request: Mode{Body: Buffered}}, true},
		"full duplex, no trailers": {Config{Request: Mode{Body: Duplex}}, false},
		"grpc, no trailers":        {Config{Response: Mode{Body: GRPC}}, false},
		"unknown":                  {Config{Response: Mode{Body: 17}}, false},
		"observed":                 {Config{Observe: true, Request: Mode{Body: Streamed}}, true},
		"observed, buffered":       {Config{Observe: true, Request: Mode{Body: Buffered}}, false},
		"observed, full duplex":    {Config{Observe: true, Response: FullDuplex()}, false},
	}
	for name, test := range tests {
		if err := test.config.Validate(); (err == nil) != test.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}
