package blockindex

// The index has two numbers of an endpoint and a prompt. Its credit is what the endpoint is taken to have cached: the
// lead blocks that it holds. Its home is what was placed there, also of blocks that it has lost since: a conversation
// comes back to where it was, although its beginning has to be computed anew, and does not drive out another one's
// blocks elsewhere. An endpoint's credit and former blocks together are closed under prefix, and no more than its
// capacity: the former ones go first, those that were lost longest ago before others.

// lose makes a block that an endpoint holds a former one, by its node. It stays that when the endpoint holds it again,
// so that a prompt which is withdrawn leaves its home as it was.
func (x *Index) lose(slot, n uint32) {
	node := x.slots[slot].nodes[n]
	x.former.reach(slot)
	l := &x.former.slots[slot]
	before := l.bytes()
	if at := l.find(node.key); at != 0 {
		l.use(at, node.use.stamp())
	} else {
		l.insert(node.key, node.use.stamp(), 0)
		x.former.stats.Held++
		x.former.hold(node.key, slot) // before it is forgotten, so that readers find it in either
	}
	x.former.stats.Bytes += l.bytes() - before
	x.forget(slot, n)
}

// trim keeps what an endpoint holds and its former blocks within its capacity.
func (x *Index) trim(slot uint32) {
	if int(slot) >= len(x.former.slots) {
		return
	}
	for l := &x.former.slots[slot]; l.size > 0 && l.size+x.slots[slot].size > x.capacity(&x.slots[slot]); {
		x.former.forget(slot, l.oldest())
	}
}

// Lose removes the blocks that Withdraw would: the endpoint has lost them, and is still their home. It returns their
// number.
func (x *Index) Lose(slot uint32, p Prompt, e Entry) int { return x.withdraw(slot, p, e, x.lose) }

// Homes sets out[slot] to the number of lead blocks of the prompt that the endpoint in the slot is the home of: that it
// holds, or held until an audit found them lost. Otherwise it is as Match.
func (x *Index) Homes(p Prompt, out []int) int {
	if x.former.words.Load() == 0 {
		return x.Match(p, out)
	}
	return x.match(p, out, x.former)
}

// Credit returns how many of the lead blocks that a slot is the home of its endpoint holds: what Match finds for the
// slot. Any goroutine may call it at any time.
func (x *Index) Credit(p Prompt, slot uint32, home int) int {
	if home == 0 || x.former.words.Load() == 0 {
		return home
	}
	root, last := p.root(), p.Blocks.Len()-1
	if !x.holds(key(root, p.Blocks.At(0)), slot) {
		return 0
	}
	for at := 0; at < last; {
		next := min(2*at+1, last)
		if x.holds(key(root, p.Blocks.At(next)), slot) {
			at = next
			continue
		}
		for next > at+1 {
			if mid := (at + next) / 2; x.holds(key(root, p.Blocks.At(mid)), slot) {
				at = mid
			} else {
				next = mid
			}
		}
		return next
	}
	return last + 1
}

// holds reports whether readers see that an endpoint holds a block.
func (x *Index) holds(k uint64, slot uint32) bool {
	t := x.shards[k>>(64-shardBits)].Load()
	var set holderSet
	return t != nil && t.holders(k, set[:slot/64+1]) && set[slot/64]&(1<<(slot%64)) != 0
}
