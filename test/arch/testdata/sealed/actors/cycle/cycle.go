// Package cycle switches over what it receives.
package cycle

import "example.test/planted/messages"

type context interface{ Log(string) }

func receive(ctx context, msg messages.CycleMsg) {
	switch msg := msg.(type) {
	case messages.RequestArrived:
		_ = msg.Request
	default:
		ctx.Log("unknown")
	}
	switch msg.(type) {
	case messages.RequestArrived:
	}
}

func generic[M messages.FlowMsg](list []messages.FlowMsg) {
	switch list[0].(type) {
	default:
	case messages.Queued:
	}
}

func other(x any) {
	switch x.(type) {
	case messages.Queued:
	default:
	}
	switch {
	default:
	}
}
