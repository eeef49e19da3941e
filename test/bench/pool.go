package main

import (
	"sync"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// pooledCodec is grpc's protobuf codec over a pool that does not clear.
type pooledCodec struct{}

func (pooledCodec) Name() string { return "proto" }

func (pooledCodec) Marshal(v any) (mem.BufferSlice, error) {
	m := v.(proto.Message)
	size := proto.Size(m)
	b := pool.Get(size)
	out, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend((*b)[:0], m)
	if err != nil {
		return nil, err
	}
	*b = out
	return mem.BufferSlice{mem.NewBuffer(b, pool)}, nil
}

func (pooledCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b := data.MaterializeToBuffer(pool)
	defer b.Free()
	return proto.Unmarshal(b.ReadOnlyData(), v.(proto.Message))
}

// unclearedPool keeps buffers of 2 KiB, 32 KiB and 1 MiB as they come back.
type unclearedPool struct{ tiers [3]sync.Pool }

var pool = new(unclearedPool)

var tierBytes = [3]int{2 << 10, 32 << 10, 1 << 20}

// Get gives a buffer whose content is undefined.
func (p *unclearedPool) Get(length int) *[]byte {
	for i, size := range tierBytes {
		if length > size {
			continue
		}
		if b, ok := p.tiers[i].Get().(*[]byte); ok {
			*b = (*b)[:length]
			return b
		}
		b := make([]byte, length, size)
		return &b
	}
	b := make([]byte, length)
	return &b
}

// Put takes back what Get gave.
func (p *unclearedPool) Put(b *[]byte) {
	for i, size := range tierBytes {
		if cap(*b) == size {
			p.tiers[i].Put(b)
		}
	}
}
