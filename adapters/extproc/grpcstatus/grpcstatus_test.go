package grpcstatus_test

import (
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/signalbox-epp/signalbox/adapters/extproc/grpcstatus"
)

func TestIsType(t *testing.T) {
	for contentType, want := range map[string]bool{
		"application/grpc": true, "application/grpc+proto": true, "Application/GRPC;charset=utf-8": true,
		"application/grpc ": true, "application/grpc-web": false, "application/json": false, "": false,
		"application/grp": false,
	} {
		if got := grpcstatus.IsType(contentType); got != want {
			t.Errorf("%q: %v, want %v", contentType, got, want)
		}
	}
}

func TestOf(t *testing.T) {
	for status, want := range map[int]codes.Code{
		200: codes.OK, 400: codes.InvalidArgument, 408: codes.DeadlineExceeded, 412: codes.FailedPrecondition,
		413: codes.ResourceExhausted, 429: codes.ResourceExhausted, 500: codes.Internal, 503: codes.Unavailable,
		504: codes.DeadlineExceeded, 418: codes.Internal,
	} {
		if got := grpcstatus.Of(status); got != want {
			t.Errorf("%d: %v, want %v", status, got, want)
		}
	}
}

func TestHTTP(t *testing.T) {
	for value, want := range map[string]int{
		"0": 0, "4": 504, "8": 429, "14": 503, "16": 401, "17": 500, "": 500, "-1": 500, "99999999999999": 500,
	} {
		if got := grpcstatus.HTTP([]byte(value)); got != want {
			t.Errorf("%q: %d, want %d", value, got, want)
		}
	}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		if got := grpcstatus.HTTP([]byte{byte('0' + code/10), byte('0' + code%10)}); got < 400 || got > 599 {
			t.Errorf("%v: %d, which is no error", code, got)
		}
	}
}

func TestMessage(t *testing.T) {
	if got, want := grpcstatus.Message("50% \n\u00e9"), "50%25 %0A%C3%A9"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
