package engine

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// spread gives shards to processors.
//
// Unless the user has chosen the number of shards, there is one for each processor that the
// process may ever have, since entries cannot move between shards. In use are only as many as
// GOMAXPROCS says, which changes while the process runs. Otherwise two processors would
// wander over 64 shards: each collision would lead them on to one that is cold, and has yet
// to make its first wheel and the first chunk of its arena, 80 KB together.
type spread struct {
	shards  []shard
	follows bool          // in use are as many as there are processors, or else all
	used    atomic.Uint32 // the first so many are given out; a power of two

	// tokens holds the shard of each processor. A sync.Pool is the only thing in the
	// standard library that is kept by processor. When GOMAXPROCS rises, it drops all that
	// it holds.
	tokens sync.Pool     // of *shard
	joined atomic.Uint32 // how often a processor was given a shard
}

// mostChosen is where more shards no longer pay by default: each shard that has something
// due costs the driver a bucket of its own at every tick. SCALING.md of the benchmarks has
// the figures.
const mostChosen = 64

// init makes n shards, or, if n is 0, as many as there may be processors. NumCPU is what the
// process could use when it began. The limit of its cgroup, which GOMAXPROCS follows, may be
// lower, and rise.
func (p *spread) init(n int) {
	if p.follows = n == 0; p.follows {
		n = min(max(runtime.NumCPU(), runtime.GOMAXPROCS(0)), mostChosen)
	}
	p.shards = make([]shard, 1<<log2(n))
	p.used.Store(uint32(len(p.shards)))
	p.follow()
}

// follow has as many shards in use as there are processors now, rounded up.
//
// It is not for every add: GOMAXPROCS takes a lock of the scheduler.
func (p *spread) follow() {
	if p.follows {
		p.used.Store(uint32(min(len(p.shards), 1<<log2(runtime.GOMAXPROCS(0)))))
	}
}

// lock returns the shard of the processor that it runs on, locked. The choice must follow
// the processor. If it were random, a shard's cache lines would travel between cores at
// every call, at three times the price. A processor that finds its shard locked moves on
// to the next shard for good. So two processors that share a shard by chance part, and
// a caller waits for a slice of a cascade only if the next shard is locked, too.
func (p *spread) lock() *shard {
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

// join returns the shard of a processor that has none. Processors get theirs in turn. If all
// began with the first, 16 processors that seldom add would use three of 16 shards, since
// they seldom collide, and an add and a cancel would take 512 to 800 ns instead of 110 to
// 130.
//
// When GOMAXPROCS rises, every processor comes here.
func (p *spread) join() *shard {
	p.follow()
	return &p.shards[(p.joined.Add(1)-1)&(p.used.Load()-1)]
}

// after returns the next of the shards in use. A processor that has come past the last looks
// whether there are fewer processors now. So after GOMAXPROCS has fallen, those that are left
// stay on their shards until they collide, and come back to the first ones when they do.
func (p *spread) after(s *shard) *shard {
	next := uint32(s.id) + 1
	if next < p.used.Load() {
		return &p.shards[next]
	}
	p.follow()
	return &p.shards[0]
}
