package flow

import (
	"sync"
	"time"
)

func race() {
	var mu sync.Mutex
	go mu.Lock()
	_ = time.Now()
}
