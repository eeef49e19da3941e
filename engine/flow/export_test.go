package flow

import "github.com/signalbox-epp/signalbox/messages"

// Waiting returns the entry of a request that waits; nil = it does not.
func (q *Queues) Waiting(id messages.RequestID) *Entry { return q.entries[id] }
