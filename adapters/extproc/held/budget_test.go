package held

import (
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// purse plays a budget: what was taken of it, and the claims that are not granted.
type purse struct {
	*Budget
	taken []int64
	open  []*Claim
}

// TestBudgetGrantsClaims draws who takes, gives and claims. What is held is exact and never above the limit, and no
// claim waits that fits and has none before it.
func TestBudgetGrantsClaims(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &purse{Budget: &Budget{limit: 100}}
		spare := func(t *rapid.T) int64 { return rapid.SampledFrom([]int64{0, 12}).Draw(t, "spare") }
		bytes := rapid.Int64Range(1, 60)
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				n, spare := bytes.Draw(t, "bytes"), spare(t)
				fits := p.held.Load()+p.owed.Load()+n <= p.limit-spare
				if got := p.Take(n, spare); got != fits {
					t.Fatalf("%d bytes are taken: %v, want %v", n, got, fits)
				}
				if fits {
					p.taken = append(p.taken, n)
				}
			},
			"file": func(t *rapid.T) {
				n, priority := bytes.Draw(t, "bytes"), rapid.IntRange(-1, 1).Draw(t, "priority")
				spare := int64(max(-priority, 0) * 12)
				inUse := p.held.Load() > p.limit-spare
				c, short := p.File(n, spare, priority)
				if (c == nil) != inUse {
					t.Fatalf("a claim is filed: %v, while the spare is in use: %v", c != nil, inUse)
				}
				if c == nil {
					return
				}
				want := min(n, p.held.Load()+p.owed.Load()-(p.limit-spare))
				if !isGranted(c) && short != want || short < 0 {
					t.Fatalf("%d bytes are short, want %d", short, want)
				}
				p.open = append(p.open, c)
			},
			"give": func(t *rapid.T) {
				if len(p.taken) == 0 {
					t.Skip()
				}
				at := rapid.IntRange(0, len(p.taken)-1).Draw(t, "which")
				n := p.taken[at]
				p.taken = append(p.taken[:at], p.taken[at+1:]...)
				p.Give(n)
			},
			"withdraw": func(t *rapid.T) {
				if len(p.open) == 0 {
					t.Skip()
				}
				at := rapid.IntRange(0, len(p.open)-1).Draw(t, "which")
				c := p.open[at]
				p.open = append(p.open[:at], p.open[at+1:]...)
				p.Withdraw(c)
			},
			"": p.look,
		})
		for _, c := range p.open {
			p.Withdraw(c)
		}
		for _, n := range p.taken {
			p.Give(n)
		}
		if p.held.Load() != 0 || p.owed.Load() != 0 || len(p.claims) != 0 {
			t.Fatalf("in the end %d bytes are held, %d owed", p.held.Load(), p.owed.Load())
		}
	})
}

// What is claimed is not taken by a stream that has to spare as much as the claim has.
func TestBudgetKeepsWhatIsClaimed(t *testing.T) {
	b := NewBudget(100)
	if !b.Take(60, 0) {
		t.Fatal("60 of 100 bytes are not taken")
	}
	claim, short := b.File(30, 12, -1)
	if short != 2 || isGranted(claim) {
		t.Fatalf("30 bytes that spare 12 are short of %d, granted: %v; want 2 and false", short, isGranted(claim))
	}
	if b.Take(5, 12) {
		t.Error("5 bytes that spare 12 are taken before the claim")
	}
	if !b.Take(5, 0) {
		t.Error("5 bytes that fit beside the claim are not taken, though they have nothing to spare")
	}
}

func isGranted(c *Claim) bool {
	select {
	case <-c.granted:
		return true
	default:
		return false
	}
}

func (p *purse) look(t *rapid.T) {
	var held, owed int64
	var first *Claim
	for _, n := range p.taken {
		held += n
	}
	waiting := p.open[:0:0]
	for _, c := range p.open {
		if isGranted(c) {
			held += c.bytes
			continue
		}
		waiting = append(waiting, c)
		owed += c.bytes
		if first == nil || c.priority > first.priority {
			first = c
		}
	}
	if p.held.Load() != held || p.owed.Load() != owed || held > p.limit {
		t.Fatalf("%d held, %d owed of %d; want %d and %d", p.held.Load(), p.owed.Load(), p.limit, held, owed)
	}
	if first != nil && held+first.bytes <= p.limit-first.spare {
		t.Fatalf("a claim of %d bytes waits beside %d that are held", first.bytes, held)
	}
}

// Many take, claim and give at once: nobody is forgotten, and nothing is left.
func TestBudgetUnderConcurrency(t *testing.T) {
	b := &Budget{limit: 100}
	var all sync.WaitGroup
	for worker := range 16 {
		all.Go(func() {
			for i := range 2000 {
				n := int64((worker*31+i*7)%50 + 1)
				if b.Take(n, 0) {
					b.Give(n)
					continue
				}
				c, _ := b.File(n, 0, worker%3)
				if i%5 > 0 {
					<-c.granted
				}
				b.Withdraw(c)
			}
		})
	}
	all.Wait()
	if b.held.Load() != 0 || b.owed.Load() != 0 {
		t.Errorf("%d bytes are held and %d owed in the end", b.held.Load(), b.owed.Load())
	}
}
