package cycle

import "example.test/planted/messages"

func find(msg messages.CycleMsg) {
	switch msg.(type) {
	default:
	}
}
