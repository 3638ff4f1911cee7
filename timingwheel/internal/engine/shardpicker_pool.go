//go:build !(gc && go1.26 && !go1.28 && !tickwheel_pool)

package engine

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// processorShards gives shards to processors in turn, and notes who has which with a sync.Pool: the
// only thing in the standard library that is kept by processor.
//
// As many shards are in use as there are processors, rounded up. Otherwise two processors
// would wander over 64 shards: each collision would lead them on to one that is cold.
type processorShards struct {
	tokens sync.Pool     // of *shard: that of each processor. When GOMAXPROCS rises, it drops all
	joined atomic.Uint32 // how often a processor was given a shard
	used   atomic.Uint32 // the first so many are in use; a power of two, and 0 before the first join
}

// lock returns the shard of the processor that it runs on, locked, as in shardpicker_pinned.go.
// A processor that finds its shard locked moves on to the next shard for good. So two
// processors that share a shard by chance part.
func (p *shardPicker) lock() *shard {
	s, ok := p.tokens.Get().(*shard)
	if !ok {
		s = p.join()
	}
	if !s.tryLock() {
		s = p.after(s)
		s.lock()
	}
	p.tokens.Put(s)
	return s
}

// join returns the shard of a processor that has none. If all began with the first, 16
// processors that seldom add would use three of 16 shards, since they seldom collide, and
// an add and a cancel would take 512 to 800 ns instead of 110 to 130.
//
// When GOMAXPROCS rises, every processor comes here.
func (p *shardPicker) join() *shard {
	p.follow()
	return &p.shards[(p.joined.Add(1)-1)&(p.used.Load()-1)]
}

// after returns the next of the shards in use. A processor that has come past the last looks
// whether there are fewer processors now. So after GOMAXPROCS has fallen, those that are left
// stay on their shards until they collide, and come back to the first ones when they do.
func (p *shardPicker) after(s *shard) *shard {
	next := uint32(s.id) + 1
	if next < p.used.Load() {
		return &p.shards[next]
	}
	p.follow()
	return &p.shards[0]
}

// follow puts as many shards to use as there are processors now, rounded up.
//
// It is not for every add: GOMAXPROCS takes a lock of the scheduler.
func (p *shardPicker) follow() {
	p.used.Store(uint32(min(len(p.shards), 1<<log2(runtime.GOMAXPROCS(0)))))
}
