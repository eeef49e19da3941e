// Package messages has fields that can change after they were sent.
package messages

import (
	"net/netip"
	"time"
	"unsafe"
)

type Sink[M any] interface{ Tell(m M) bool }

type List[T any] struct{ items []T }

type Map[K comparable, V any] struct{ items map[K]V }

type Box[T any] struct{ Value T }

type CycleMsg interface{ cycleMsg() }

type ID uint64

type Names []string

type Alias = []int

type Value struct {
	Inner struct{ Deep *int }
}

type Good struct {
	ID       ID
	Count    int
	Rate     float32
	Name     string
	OK       bool
	At       time.Time
	Wait     time.Duration
	Hash     [32]byte
	Blocks   List[uint64]
	Labels   Map[string, List[ID]]
	Cycle    Sink[CycleMsg]
	Box      Box[int]
	Children List[Child]
}

type Child struct{ Children List[Child] }

type Bad struct {
	Slice     []int
	Alias     Alias
	Named     Names
	Map       map[string]int
	Pointer   *ID
	Func      func()
	Chan      chan int
	Any       any
	Error     error
	Interface CycleMsg
	Unsafe    unsafe.Pointer
	Addr      netip.Addr
	Month     time.Month
	Array     [2][]int
	Value     Value
	List      List[[]byte]
	Values    List[Value]
	Entries   Map[string, *int]
	Box       Box[[]int]
	hidden    []int
}
