// Package extproc is an adapter.
package extproc

import (
	"net"
	"os"

	"example.test/planted/messages"
	"google.golang.org/grpc"
)

// Serve serves.
func Serve(m messages.StreamMsg, s *grpc.Server, l net.Listener) {
	go s.Serve(l)
	os.Exit(0)
}
