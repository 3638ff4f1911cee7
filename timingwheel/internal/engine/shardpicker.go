package engine

import "runtime"

// shardPicker gives shards to processors. Its method lock is in shardpicker_pinned.go.
//
// Unless the user has chosen the number of shards, there is one for each processor that the
// process may ever have, since entries cannot move between shards. In use are only as many as
// GOMAXPROCS says, which changes while the process runs, also where the user has chosen more. The
// others have yet to make their first wheel and the first chunk of their arena, 5 to 80 KB together.
type shardPicker struct {
	shards []shard // a power of two
	//lint:ignore U1000 it has fields in shardpicker_pool.go alone
	processorShards
}

// mostChosen is where more shards no longer pay by default: each shard that has something
// due costs the driver a bucket of its own at every tick. SCALING.md of the benchmarks has
// the figures.
const mostChosen = 64

// init makes n shards, or, if n is 0, as many as there may be processors. NumCPU is what the
// process could use when it began. The limit of its cgroup, which GOMAXPROCS follows, may be
// lower, and rise.
func (p *shardPicker) init(n int) {
	if n == 0 {
		n = min(max(runtime.NumCPU(), runtime.GOMAXPROCS(0)), mostChosen)
	}
	p.shards = make([]shard, 1<<log2(n))
}
