// Package runtime alone knows protoactor, and has no other freedom here.
package runtime

import (
	_ "github.com/asynkron/protoactor-go/actor"
	_ "github.com/prometheus/client_golang/prometheus"
	_ "os"
)
