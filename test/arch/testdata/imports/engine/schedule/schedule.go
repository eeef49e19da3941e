// Package schedule reaches up and out.
package schedule

import (
	_ "crypto/rand"
	_ "example.test/planted"
	_ "example.test/planted/actors/cycle"
	_ "example.test/planted/adapters/extproc"
	_ "example.test/planted/cmd/signalbox"
	_ "example.test/planted/engine/config"
	_ "example.test/planted/messages"
	_ "example.test/planted/test/sim"
	_ "github.com/asynkron/protoactor-go/actor"
	_ "github.com/cespare/xxhash/v2"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	_ "github.com/prometheus/client_golang/prometheus"
	_ "golang.org/x/sync/singleflight"
	_ "google.golang.org/grpc/codes"
	_ "hash/maphash"
	_ "k8s.io/api/core/v1"
	_ "net/http"
	_ "net/netip"
	_ "os"
	_ "sigs.k8s.io/controller-runtime"
	_ "sigs.k8s.io/yaml"
)
