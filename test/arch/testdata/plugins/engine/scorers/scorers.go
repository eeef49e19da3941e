// Package scorers has a table with holes.
package scorers

import "example.test/planted/engine/schedule"

const name = "named-scorer"

// Types is the table.
var Types = map[string]func() schedule.Scorer{
	"queue-scorer":    func() schedule.Scorer { return new(QueueDepth) },
	"load-scorer":     func() schedule.Scorer { return &LoadAware{Threshold: 128} },
	"kv-scorer":       func() schedule.Scorer { return KVCache{} },
	"lora-scorer":     func() schedule.Scorer { return LoRAAffinity{} },
	"misplaced":       func() schedule.Scorer { return Misplaced{} },
	"silent":          func() schedule.Scorer { return Silent{} },
	"hidden-defaults": newHidden,
	name:              func() schedule.Scorer { return QueueDepth{} },
}

func newHidden() schedule.Scorer { return QueueDepth{} }

// Misplaced stands in the family's file.
type Misplaced struct{}

func (Misplaced) Score() float32 { return 0 }
