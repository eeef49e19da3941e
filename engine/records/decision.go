package records

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/signalbox-epp/signalbox/messages"
)

// decision packs all of a decision but its shape. Together with what was packed before it takes at most budget bytes,
// if scores of leastBits are small enough for that.
func (p *packer) decision(d *messages.Decision, budget int) {
	p.unsigned(d.PoolVersion)
	p.count(d.Pool)
	p.flags(d.Probe, d.Stale)
	p.signed(int64(d.Primary))
	p.endpoints(d.Endpoints)
	p.count(d.Outliers.Len())
	for _, o := range d.Outliers.All() {
		p.count(o.At)
		p.flags(o.Ejected)
		p.to = append(p.to, byte(o.Cause))
	}
	p.count(d.Stages.Len())
	for _, stage := range d.Stages.All() {
		p.count(stage.Run)
		p.count(stage.At)
		p.flags(stage.Probe)
	}
	p.count(d.Headers.Len())
	for _, h := range d.Headers.All() {
		p.texts(h.Name, h.Value)
	}
	for i := range d.Profiles.Len() {
		run := d.Profiles.At(i)
		p.run(&run)
	}
	p.scores(d.Profiles, budget)
}

func (u *unpacker) decision(d *messages.Decision, s *shape) {
	d.PoolVersion = u.unsigned()
	d.Pool = int(u.unsigned())
	u.flags(&d.Probe, &d.Stale)
	d.Primary = int(u.signed())
	d.Endpoints = u.endpoints()
	outliers := make([]messages.Outlier, u.count(3*8))
	for i := range outliers {
		outliers[i].At = int(u.unsigned())
		u.flags(&outliers[i].Ejected)
		outliers[i].Cause = messages.FailureKind(u.octet())
	}
	d.Outliers = messages.TakeList(outliers)
	stages := make([]messages.Stage, u.count(3*8))
	for i := range stages {
		stages[i] = messages.Stage{Run: int(u.unsigned()), At: int(u.unsigned())}
		u.flags(&stages[i].Probe)
	}
	d.Stages = messages.TakeList(stages)
	headers := make([]messages.Header, u.count(2*8))
	for i := range headers {
		u.texts(&headers[i].Name, &headers[i].Value)
	}
	d.Headers = messages.TakeList(headers)
	runs := make([]messages.ProfileRun, len(s.runs))
	for i := range runs {
		u.run(&runs[i], &s.runs[i])
	}
	u.scores(runs, s)
	d.Profiles = messages.TakeList(runs)
}

// endpoints packs ids as differences, which are small: slots mostly ascend, and generations are mostly equal.
func (p *packer) endpoints(list messages.List[messages.EndpointID]) {
	p.count(list.Len())
	var last messages.EndpointID
	to := p.to
	for i := range list.Len() {
		id := list.At(i)
		to = binary.AppendVarint(to, int64(id.Slot)-int64(last.Slot))
		to = binary.AppendVarint(to, int64(id.Generation)-int64(last.Generation))
		last = id
	}
	p.to = to
}

func (u *unpacker) endpoints() messages.List[messages.EndpointID] {
	list := make([]messages.EndpointID, u.count(2*8))
	var last messages.EndpointID
	for i := range list {
		last.Slot = uint32(int64(last.Slot) + u.signed())
		last.Generation = uint32(int64(last.Generation) + u.signed())
		list[i] = last
	}
	return messages.TakeList(list)
}

// run packs all of a profile run but its shape and its scores.
func (p *packer) run(run *messages.ProfileRun) {
	p.texts(run.Failed)
	p.flags(run.Optional, run.Shadow)
	p.signed(int64(run.Runner))
	p.signed(int64(run.Ages[0]))
	p.signed(int64(run.Ages[1]))
	p.count(run.Ranked.Len())
	for i := range run.Ranked.Len() {
		p.unsigned(uint64(run.Ranked.At(i)))
	}
	p.floats(run.Values)
	p.totals(run.Totals)
	var last messages.List[bool]
	for i := range run.Filters.Len() {
		kept := run.Filters.At(i).Kept
		p.kept(kept, last)
		last = kept
	}
}

func (u *unpacker) run(run *messages.ProfileRun, s *runShape) {
	run.Profile, run.Reads = s.profile, s.reads
	u.texts(&run.Failed)
	u.flags(&run.Optional, &run.Shadow)
	run.Runner = int(u.signed())
	run.Ages = [2]time.Duration{time.Duration(u.signed()), time.Duration(u.signed())}
	ranked := make([]uint32, u.count(8))
	for i := range ranked {
		ranked[i] = uint32(u.unsigned())
	}
	run.Ranked = messages.TakeList(ranked)
	run.Values = u.floats()
	run.Totals = u.totals()
	filters := make([]messages.FilterRun, len(s.filters))
	var last messages.List[bool]
	for i := range filters {
		last = u.kept(last)
		filters[i] = messages.FilterRun{Plugin: s.filters[i], Kept: last}
	}
	run.Filters = messages.TakeList(filters)
}

func (p *packer) floats(list messages.List[float32]) {
	p.count(list.Len())
	to := p.to
	for i := range list.Len() {
		to = binary.LittleEndian.AppendUint32(to, math.Float32bits(list.At(i)))
	}
	p.to = to
}

func (u *unpacker) floats() messages.List[float32] {
	list := make([]float32, u.count(4*8))
	for i := range list {
		list[i] = u.float()
	}
	return messages.TakeList(list)
}

// totals packs which totals are negative, for which any negative number stands, and all others to the last bit.
func (p *packer) totals(list messages.List[float32]) {
	p.count(list.Len())
	w := p.bits()
	for i := range list.Len() {
		w.put(flag(!(list.At(i) < 0)), 1)
	}
	w.flush()
	for i := range list.Len() {
		if v := list.At(i); !(v < 0) {
			p.float(v)
		}
	}
}

func (u *unpacker) totals() messages.List[float32] {
	list := make([]float32, u.count(1))
	r := u.bits(len(list))
	for i := range list {
		if list[i] = -1; r.get(1) == 1 {
			list[i] = u.float()
		}
	}
	return messages.TakeList(list)
}

// kept packs what a filter kept. Most drop nothing, so that one bit says that it is what the filter before it kept. The
// list before the first is empty and stands for all endpoints.
func (p *packer) kept(list, last messages.List[bool]) {
	same := last.Len() == 0 || last.Len() == list.Len()
	for i := 0; i < list.Len() && same; i++ {
		same = list.At(i) == (last.Len() == 0 || last.At(i))
	}
	p.count(list.Len()<<1 | int(flag(same)))
	if same {
		return
	}
	w := p.bits()
	for i := range list.Len() {
		w.put(flag(list.At(i)), 1)
	}
	w.flush()
}

func (u *unpacker) kept(last messages.List[bool]) messages.List[bool] {
	head := u.unsigned()
	n, same := int(head>>1), head&1 == 1
	if same && last.Len() > 0 {
		return last
	}
	if same {
		return messages.TakeList(slices.Repeat([]bool{true}, n))
	}
	list := make([]bool, min(n, 8*len(u.from)))
	r := u.bits(len(list))
	for i := range list {
		list[i] = r.get(1) == 1
	}
	return messages.TakeList(list)
}
