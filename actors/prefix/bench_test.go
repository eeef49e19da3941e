package prefix_test

import (
	"math/rand/v2"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox-epp/signalbox/actors/prefix"
	"github.com/signalbox-epp/signalbox/engine/blockindex"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

// BenchmarkAuditedPrompt is a prompt of a conversation of 60 blocks, half of them common to all, from the pick to the
// end of an answer that reports cached tokens.
func BenchmarkAuditedPrompt(b *testing.B) {
	const talks, shared, length = 200, 30, 60
	metrics, err := prefix.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		b.Fatal(err)
	}
	actor := prefix.New(blockindex.NewIndex(0), endpoints.NewPublished(), metrics)
	var prompts [talks]messages.List[uint64]
	for n := range prompts {
		var blocks []uint64
		for i := range length {
			block := uint64(i + 1)
			if i >= shared {
				block += uint64(n+1) << 32
			}
			block *= 0x9e3779b97f4a7c15
			blocks = append(blocks, block^block>>32)
		}
		prompts[n] = messages.TakeList(blocks)
	}
	id, chance := messages.RequestID(0), rand.New(rand.NewPCG(1, 2))
	life := func() {
		id++
		blocks := prompts[chance.IntN(talks)]
		actor.Receive(nil, messages.PromptPlaced{Request: id, Endpoint: a1, Model: "m", Blocks: blocks})
		actor.Receive(nil, messages.PromptServed{Request: id, Endpoint: a1})
		actor.Receive(nil, messages.PromptEnded{Request: id, Prompt: messages.ReportedPrompt{
			API: messages.ChatAPI, PromptTokens: length*64 + 7, CachedTokens: length * 64, CachedKnown: true,
		}})
	}
	for range 5 * talks {
		life()
	}
	b.ReportAllocs()
	for b.Loop() {
		life()
	}
}
