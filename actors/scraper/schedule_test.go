package scraper_test

import (
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/actors/scraper"
	"github.com/signalbox-epp/signalbox/engine/endpoints"
	"github.com/signalbox-epp/signalbox/messages"
)

func TestIntervalIsWhatThePageCosts(t *testing.T) {
	for name, c := range map[string]struct {
		fixed      time.Duration
		pageBytes  int
		idle, busy time.Duration
	}{
		"small page":            {0, 2600, time.Second, 500 * time.Millisecond},
		"vllm, 60 KiB":          {0, 60 << 10, time.Second, 600 * time.Millisecond},
		"huge page":             {0, 300 << 10, 3 * time.Second, 3 * time.Second},
		"fixed below the floor": {50 * time.Millisecond, 300 << 10, 50 * time.Millisecond, 50 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, scraper.Config{Scraping: messages.Scraping{Metrics: true, Interval: c.fixed}})
			s.settled()
			tell := func(n uint32, interval time.Duration) {
				m := answer(n, 0)
				m.PageBytes = c.pageBytes
				s.stage.Tell(m)
				if got := s.target.Sample().Interval; got != interval {
					t.Errorf("the sample says %v, want %v", got, interval)
				}
			}
			_, n := s.asks()
			tell(n, c.idle)
			n = s.asksAfter(c.idle)
			pick := endpoints.LoadWriter(s.target).Add(endpoints.Work{Prompt: 1}, time.Time{})
			tell(n, c.busy)
			n = s.asksAfter(c.busy)
			endpoints.LoadWriter(s.target).Remove(pick)
			tell(n, c.idle)
			s.asksAfter(c.idle)
		})
	}
}

// However many endpoints there are, their pages together take 5 % of one of our cores at most, idle or not.
func TestIntervalGrowsWithThePool(t *testing.T) {
	for name, c := range map[string]struct {
		endpoints, pageBytes int
		idle, busy           time.Duration
	}{
		"a few":                {10, 60 << 10, time.Second, 600 * time.Millisecond},
		"fifty":                {50, 60 << 10, time.Second, 690 * time.Millisecond},
		"a thousand":           {1000, 60 << 10, 13800 * time.Millisecond, 13800 * time.Millisecond},
		"a thousand, no page":  {1000, 0, 9 * time.Second, 9 * time.Second},
		"a hundred, huge page": {100, 1 << 20, 10240 * time.Millisecond, 10240 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, scraper.Config{
				Scraping: messages.Scraping{Metrics: true}, Endpoints: func() int { return c.endpoints },
			})
			tell := func(n uint32, want time.Duration) {
				m := answer(n, 0)
				m.PageBytes = c.pageBytes
				s.stage.Tell(m)
				if got := s.target.Sample().Interval; got != want {
					t.Errorf("the sample says %v, want %v", got, want)
				}
			}
			s.settled()
			_, n := s.asks()
			tell(n, c.idle)
			n = s.asksAfter(c.idle)
			endpoints.LoadWriter(s.target).Add(endpoints.Work{Prompt: 1}, time.Time{})
			tell(n, c.busy)
			s.asksAfter(c.busy)
		})
	}
}
