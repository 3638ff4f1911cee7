package engine

import (
	"iter"
	"math"

	"github.com/tickwheel/tickwheel/bucket"
)

// wheel is one level of a hierarchy: a ring of slots, each as wide as the wheel's tick.
// Behind it is the overflow wheel, whose tick is this wheel's whole interval. A wheel has
// no lock and reads no clock. It counts time in ticks of the finest wheel, whatever its
// level. The lock of its shard guards everything in it.
//
// Intervals are aligned, not rolling: the wheel holds the ticks that share its current
// interval, and no others. So at any time there is one slot in the whole hierarchy where
// a given tick can be. This keeps the entries of one tick in the order in which they were
// added. The slot of currentTime itself stays empty: on the finest wheel its entries are
// due, and on the others a finer wheel holds them.
//
// An example: wheels of 4 slots, all clocks at 0, and an entry for tick 27. The slots of
// level 0 are 1 tick wide, those of level 1 are 4, and those of level 2 are 16.
//
//	add at tick 0    Level 0 covers 0 to 3, and level 1 covers 0 to 15: not enough.
//	                 Level 2 covers 0 to 63: the entry goes to its slot 1, ticks 16
//	                 to 31. This bucket expires at 16.
//	flush at 16      The clocks of all three levels advance to 16. Level 0 covers 16
//	                 to 19 now. Level 1 covers 16 to 31: the entry goes to its slot
//	                 2, ticks 24 to 27. This bucket expires at 24.
//	flush at 24      The clocks of levels 0 and 1 advance to 24. Level 0 covers 24 to
//	                 27: the entry goes to its slot 3, tick 27.
//	flush at 27      The clock of level 0 advances to 27. add returns false: the
//	                 entry is due.
type wheel struct {
	owner       wheelOwner
	arena       *bucket.Arena // of the owner
	level       uint          // 0 for the finest
	shift       uint          // log2 of tick
	bits        uint          // log2 of the number of slots
	tick        int64         // width of a slot
	mask        int64         // the bits in which the ticks of an interval differ: interval()-1
	currentTime int64         // of advance: no bucket that expires until then is open
	last        int           // number of the last slot
	pages       []*page       // of slots; nil until one of its slots is opened
	cascade     cascade
	overflow    *wheel // nil until first needed
}

// wheelOwner is told of each bucket that was just opened.
type wheelOwner interface{ opened(b *slot) }

// slot is a bucket in its place: in a wheel, or as the due bucket of a shard. Slots are
// what waits in the delay queue. A slot is there exactly once while its bucket is open,
// and not at all while the bucket is closed.
type slot struct {
	bucket.Bucket
	cascade *cascade // where the entries go when the bucket expires
}

// page is a part of a ring of slots. A level has only the pages that were ever used: three
// pages of 1 KB for one timer of an hour, for 48 KB with rings in one piece. An add and cancel
// takes as long.
type page [pageLen]slot

const (
	pageBits = 5
	pageLen  = 1 << pageBits
)

// cascade holds the entries of a bucket that has expired while the driver flushes them in
// slices. Each level has one, because a finer bucket may be flushed between two slices of
// a coarser one. Of one level, only one bucket cascades at a time.
type cascade struct {
	shard       int           // which one
	ring        bucket.Bucket // open while under way; guarded by the shard's lock
	openBuckets int           // buckets of the level that are open; guarded by the shard's lock
	allDue      bool          // the entries are due, whatever their deadline
}

// newWheel is not inlined, so that the frames of add are small.
//
//go:noinline
func newWheel(owner wheelOwner, arena *bucket.Arena, shard int, bits, level uint, currentTime int64) *wheel {
	shift := level * bits
	w := &wheel{
		owner:   owner,
		arena:   arena,
		level:   level,
		shift:   shift,
		bits:    bits,
		tick:    1 << shift,
		mask:    math.MaxInt64,
		last:    1<<bits - 1,
		pages:   make([]*page, (1<<bits+pageLen-1)/pageLen),
		cascade: cascade{shard: shard},
	}
	if shift+bits < 63 {
		w.mask = 1<<(shift+bits) - 1
	}
	w.currentTime = currentTime &^ (w.tick - 1)
	return w
}

// makePage is not inlined, so that the frames of add are small.
//
//go:noinline
func (w *wheel) makePage(n int) *page {
	p := new(page)
	for i := range p {
		p[i].cascade = &w.cascade
	}
	w.pages[n] = p
	return p
}

// slots iterates over the slots of all pages, with their numbers. A slot that it leaves out was
// never open.
func (w *wheel) slots() iter.Seq2[int, *slot] {
	return func(yield func(int, *slot) bool) {
		for n, p := range w.pages {
			if p == nil {
				continue
			}
			for i := range min(pageLen, w.last+1) {
				if !yield(n*pageLen+i, &p[i]) {
					return
				}
			}
		}
	}
}

// find returns the slot of a deadline, on this level or on a coarser one, with its bucket
// open, and the level; nil if the deadline has come. O(levels).
func (w *wheel) find(deadline int64) (s *slot, level uint) {
	if deadline < w.currentTime+w.tick {
		return nil, 0
	}
	for !w.covers(deadline) {
		if w.overflow == nil {
			w.makeOverflow()
		}
		w = w.overflow
	}
	n := w.position(deadline)
	p := w.pages[n>>pageBits]
	if p == nil {
		p = w.makePage(n >> pageBits)
	}
	s = &p[n&(pageLen-1)]
	if !s.IsOpen() {
		w.open(s, deadline)
	}
	return s, w.level
}

// open opens the bucket of a slot.
func (w *wheel) open(s *slot, deadline int64) {
	s.Open(w.arena, deadline&^(w.tick-1))
	w.owner.opened(s)
}

func (w *wheel) makeOverflow() {
	w.overflow = newWheel(w.owner, w.arena, w.cascade.shard, w.bits, w.level+1, w.currentTime)
}

// covers reports whether a tick is in the wheel's current interval. Neither is negative.
func (w *wheel) covers(tick int64) bool { return tick^w.currentTime <= w.mask }

// interval returns the number of ticks that the wheel covers, saturating.
func (w *wheel) interval() int64 { return max(w.mask, w.mask+1) }

// position returns the number of the slot that holds a tick.
func (w *wheel) position(tick int64) int { return int(tick>>(w.shift&63)) & w.last }

// advance sets currentTime to t, rounded down to a tick, on this level and on the coarser
// ones. It does nothing if t is in the past. Its depth is bounded by the number of
// levels.
func (w *wheel) advance(t int64) {
	if t < w.currentTime+w.tick {
		return
	}
	w.currentTime = t &^ (w.tick - 1)
	if w.overflow != nil {
		w.overflow.advance(t)
	}
}

// isCascading reports whether an entry of this level that was not pushed back is in the
// bucket that is being flushed. The clock has passed that bucket's slot, so no other
// entry of the level has such a deadline.
func (w *wheel) isCascading(deadline int64) bool {
	ring := &w.cascade.ring
	return ring.IsOpen() && deadline&^(w.tick-1) == ring.Expiration()
}
