// Package extproc may do all of it.
package extproc

import (
	"math/rand"
	"sync"
	"time"
)

var mu sync.Mutex

func serve() {
	go mu.Lock()
	_, _ = time.Now(), rand.Int()
}
