//go:build gc && go1.26 && !go1.28 && !tickwheel_pool

package engine

import _ "unsafe" // for go:linkname

// processorShards chooses a shard by the number of the processor, which only the runtime knows. The
// function is there for package sync. The runtime lets others link to it, and promises nothing.
// So this file is only for the releases of Go with which it was tested, and any other
// release takes shardpicker_pool.go, as does the build tag tickwheel_pool. With the number an add
// and cancel takes 0.92 of the time that it takes there, alone and if two processors add.
//
// Rejected: RDPID, which reads the system's number of the processor. It is one instruction,
// but only of newer processors of one architecture. A hash of the stack's address is not the
// processor's: goroutines that move between processors take their shards with them.
type processorShards struct{}

// lock returns the shard of the processor that it runs on, locked. The choice must follow
// the processor. If it were random, a shard's cache lines would travel between cores at
// every call, at three times the price. A caller that finds the shard locked takes that of
// another processor, this once. So it waits for a slice of a cascade only if that is locked,
// too.
//
// The number of a processor is below GOMAXPROCS. If there are more processors than shards,
// some share one.
func (p *shardPicker) lock() *shard {
	id, mask := procPin(), len(p.shards)-1
	procUnpin()
	s := &p.shards[id&mask]
	if !s.tryLock() {
		s = &p.shards[(id^1)&mask]
		s.lock()
	}
	return s
}

//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()
