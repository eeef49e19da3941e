package main

import (
	"testing"

	"github.com/signalbox-epp/signalbox/engine/queues/queuestest"
)

func TestStacksDoWhatTheySay(t *testing.T) { queuestest.Conform(t, new(Stacks)) }
