package detectors

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/signalbox-epp/signalbox/engine/attributes"
	"github.com/signalbox-epp/signalbox/engine/clip"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/engine/filters"
	"github.com/signalbox-epp/signalbox/engine/schedule"
)

// The values of Stages.
const (
	prefillStage = "prefill"
	decodeStage  = "decode"
)

// MaxSaturation says how full the pool is by several other detectors: by the one that finds it fullest. With the
// feature gate flowControl on, a server has room only where it has room by each of them.
type MaxSaturation struct {
	// Detectors names the other detectors, which are plugins of the file; required.
	Detectors []string `json:"detectors"`
	// Stages has the stages for which a detector counts, prefill and decode, by its name: it then says nothing of
	// servers that do no such work, by their label llm-d.ai/role. A detector that is not named counts for all servers.
	Stages map[string][]string `json:"stages"`

	of []member
}

// member is one of the other detectors.
type member struct {
	schedule.Detector
	name   string
	stages []string // for which it counts; empty = all
}

// Validate returns what is wrong with the parameters.
func (d *MaxSaturation) Validate() error {
	var errs []error
	if len(d.Detectors) == 0 {
		errs = append(errs, errors.New("detectors: missing; name the detectors that count"))
	}
	for i, name := range d.Detectors {
		if slices.Contains(d.Detectors[:i], name) {
			errs = append(errs, fmt.Errorf("detectors[%d]: %s stands twice", i, clip.Value(name)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Stages)) {
		stages := d.Stages[name]
		if !slices.Contains(d.Detectors, name) {
			errs = append(errs, fmt.Errorf("stages.%s: no such detector is named by detectors", clip.Value(name)))
		}
		if len(stages) == 0 {
			errs = append(errs, fmt.Errorf("stages.%s: no stage, want %s or %s", clip.Value(name), prefillStage,
				decodeStage))
		}
		for i, stage := range stages {
			if stage != prefillStage && stage != decodeStage {
				errs = append(errs, fmt.Errorf("stages.%s[%d]: got %q, want %s or %s", clip.Value(name), i,
					clip.Value(stage), prefillStage, decodeStage))
			}
		}
	}
	return errors.Join(errs...)
}

// Combine finds the detectors.
func (d *MaxSaturation) Combine(find func(parameter, name string) schedule.Detector) {
	d.of = nil
	for i, name := range d.Detectors {
		if found := find(fmt.Sprintf("detectors[%d]", i), name); found != nil {
			d.of = append(d.of, member{found, name, d.Stages[name]})
		}
	}
}

// Parts returns the detectors.
func (d *MaxSaturation) Parts() (all []schedule.Part) {
	for _, p := range d.of {
		all = append(all, schedule.Part{Name: p.name, Detector: p.Detector, Stages: p.stages})
	}
	return all
}

// Declare asks for what the detectors read.
func (d *MaxSaturation) Declare(r *attributes.Reader) {
	for _, p := range d.of {
		if reader, ok := p.Detector.(schedule.Reader); ok {
			reader.Declare(r)
		}
	}
}

// Learns has pages be read for what the detectors learn from.
func (d *MaxSaturation) Learns() (all []attributes.Attribute) {
	for _, p := range d.of {
		if learner, ok := p.Detector.(interface{ Learns() []attributes.Attribute }); ok {
			all = append(all, learner.Learns()...)
		}
	}
	return all
}

// Saturation returns the largest of those that the detectors find which count for any of the candidates.
func (d *MaxSaturation) Saturation(in *schedule.Input) (most float64) {
	for i := range d.of {
		if p := &d.of[i]; p.countsForAny(in) {
			most = max(most, p.Detector.Saturation(in))
		}
	}
	return most
}

// Unknown returns how many servers a detector does not know about, that of which there are the most.
func (d *MaxSaturation) Unknown(in *schedule.Input) (most int) {
	for _, p := range d.of {
		if reader, ok := p.Detector.(schedule.SampleReader); ok {
			most = max(most, reader.Unknown(in))
		}
	}
	return most
}

// Bounds returns the least of all bounds. Where a detector counts for some servers only, its bound is left to Room.
func (d *MaxSaturation) Bounds(ceiling float64) endpoints.Room {
	var all endpoints.Room
	for _, p := range d.of {
		gate, ok := p.Detector.(schedule.Gate)
		if !ok || len(p.stages) > 0 {
			continue
		}
		bounds := gate.Bounds(ceiling)
		all.Requests, all.Tokens = lesser(all.Requests, bounds.Requests), lesser(all.Tokens, bounds.Tokens)
		all.Waiting = lesser(all.Waiting, bounds.Waiting)
		if bounds.Learned {
			all.Learned, all.Share = true, bounds.Share
		}
	}
	return all
}

// lesser returns the lesser of two bounds, of which 0 is none.
func lesser(a, b int) int {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// Room keeps the servers that have room by each detector that counts for them.
func (d *MaxSaturation) Room(in *schedule.Input, keep []bool) { d.leave(in, keep, false) }

// Exclude is Room without the bounds for which requests wait at a server.
func (d *MaxSaturation) Exclude(in *schedule.Input, keep []bool) { d.leave(in, keep, true) }

func (d *MaxSaturation) leave(in *schedule.Input, keep []bool, priced bool) {
	for i := range d.of {
		p, room := &d.of[i], in.Flags()
		pricing, prices := p.Detector.(schedule.Pricing)
		gate, bounds := p.Detector.(schedule.Gate)
		switch {
		case priced && prices && len(p.stages) == 0:
			pricing.Exclude(in, room)
		case bounds:
			gate.Room(in, room)
		case p.Detector.Saturation(in) >= in.Ceiling():
			clear(room)
		}
		for j := range keep {
			keep[j] = keep[j] && (room[j] || !p.counts(in.Candidates().At(j)))
		}
	}
}

// countsForAny reports whether the detector counts for a candidate.
func (p *member) countsForAny(in *schedule.Input) bool {
	for _, c := range in.Candidates().All() {
		if p.counts(c) {
			return true
		}
	}
	return false
}

// counts reports whether the detector counts for a server.
func (p *member) counts(server schedule.Candidate) bool {
	if len(p.stages) == 0 {
		return true
	}
	for _, stage := range p.stages {
		if stage == prefillStage && filters.Prefills(server) || stage == decodeStage && filters.Decodes(server) {
			return true
		}
	}
	return false
}
