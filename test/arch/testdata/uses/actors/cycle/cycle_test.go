package cycle

import "sync"

func race() {
	var mu sync.RWMutex
	go mu.Lock()
}
