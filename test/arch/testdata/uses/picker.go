// Package planted joins actors.
package planted

import (
	"sync"
	"time"
)

var mu sync.Mutex

func now() time.Time {
	go func() {}()
	return time.Now()
}
