package flow_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/signalbox-epp/signalbox/engine/flow"
	"github.com/signalbox-epp/signalbox/engine/queues"
	"github.com/signalbox-epp/signalbox/messages"
)

// crowd has so many requests wait, of so many flows in ten bands that are known there, and returns what was made.
func crowd(b *testing.B, q *flow.Queues, flows, requests int) []*flow.Entry {
	b.Helper()
	names := make([]string, max(flows/10, 1))
	for i := range names {
		names[i] = fmt.Sprint("tenant-", i)
	}
	for i := range 16 * max(flows, 1) {
		q.Push(&flow.Entry{Flow: messages.FlowKey{
			Fairness: names[i/10%len(names)], Priority: i % min(flows, 10),
		}})
		q.Next(anyRoom)
	}
	made := make([]*flow.Entry, requests)
	for i := range made {
		made[i] = &flow.Entry{
			Request: messages.RequestID(i + 1),
			Wait:    flow.Wait{Arrived: start.Add(-time.Duration(requests-i) * time.Millisecond / 10), Deadline: start},
			Work:    flow.Work{Prompt: 1 + i%1000, Bytes: 100},
			Flow:    messages.FlowKey{Fairness: names[i/10%len(names)], Priority: i % min(flows, 10)},
		}
		if _, ok := q.Push(made[i]); !ok {
			b.Fatal("refused")
		}
	}
	return made
}

// BenchmarkPushNext has a request wait and dispatches one, with so many waiting all the time.
func BenchmarkPushNext(b *testing.B) {
	for _, c := range []struct{ flows, waiting int }{{1, 1}, {1, 100_000}, {10_000, 10_000}, {10_000, 100_000}} {
		for _, policies := range [][2]string{
			{fcfs, strict}, {fcfs, robin}, {edf, token}, {fcfs, program},
		} {
			b.Run(fmt.Sprintf("flows=%d/waiting=%d/%s", c.flows, c.waiting, policies[1]), func(b *testing.B) {
				q := flow.New(everywhere(band(policies[0], policies[1], flow.Limits{}), flow.Limits{}))
				crowd(b, q, c.flows, c.waiting)
				e, now := q.Next(anyRoom), start
				b.ReportAllocs()
				for b.Loop() {
					now = now.Add(100 * time.Microsecond)
					q.Advance(now)
					e.Arrived = now
					q.Push(e)
					e = q.Next(anyRoom)
				}
			})
		}
	}
}

// BenchmarkFullClasses dispatches a request whose endpoint has room again while 100 000 wait for so many full ones, and
// has another one wait.
func BenchmarkFullClasses(b *testing.B) {
	for _, classes := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(classes), func(b *testing.B) {
			q := flow.New(everywhere(band(fcfs, robin, flow.Limits{}), flow.Limits{}))
			made := make([]*flow.Entry, 100_000)
			for i := range made {
				made[i] = &flow.Entry{
					Request: messages.RequestID(i + 1), Class: flow.Class(i % classes),
					Wait: flow.Wait{Arrived: start, Deadline: start},
					Flow: messages.FlowKey{Fairness: fmt.Sprint("tenant-", i%97)},
				}
				q.Push(made[i])
			}
			roomy, i := flow.Class(0), 0
			room := func(e *flow.Entry) bool { return e.Class == roomy }
			b.ReportAllocs()
			for b.Loop() {
				i++
				roomy = flow.Class(i % classes)
				q.Open(roomy)
				q.Push(q.Next(room))
			}
		})
	}
}

// BenchmarkPushFull has a request wait that takes the place of another one, for the line is full, and dispatches one.
func BenchmarkPushFull(b *testing.B) {
	q := flow.New(everywhere(band(fcfs, robin, flow.Limits{}), flow.Limits{Requests: 100_000}))
	crowd(b, q, 10_000, 100_000)
	number := messages.RequestID(100_000)
	push := func(fairness string) {
		number++
		q.Push(&flow.Entry{Request: number, Wait: flow.Wait{Arrived: start, Deadline: start}, Flow: messages.FlowKey{
			Fairness: fairness, Priority: 9,
		}})
	}
	b.ReportAllocs()
	for b.Loop() {
		push("tenant-1")
		push("tenant-2")
		q.Next(anyRoom)
	}
}

// BenchmarkCancel takes 100 000 waiting requests out, one by one.
func BenchmarkCancel(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		q := flow.New(everywhere(band(edf, token, flow.Limits{}), flow.Limits{}))
		made := crowd(b, q, 10_000, 100_000)
		b.StartTimer()
		for _, e := range made {
			q.Remove(e.Request)
		}
	}
}

// BenchmarkLocal does so by locality, with prompts that take a microsecond to find.
func BenchmarkLocal(b *testing.B) {
	q := flow.New(everywhere(local(100_000, new(queues.ListQueue)), flow.Limits{}))
	q.Locate(func(e *flow.Entry) int {
		sum := 0
		for i := range 400 {
			sum += i ^ int(e.Request)
		}
		return sum & 1
	})
	crowd(b, q, 10_000, 100_000)
	e := q.Next(anyRoom)
	b.ReportAllocs()
	for b.Loop() {
		q.Push(e)
		e = q.Next(anyRoom)
	}
}
