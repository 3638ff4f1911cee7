package engine

import (
	"sync/atomic"
	"unsafe"

	"github.com/tickwheel/tickwheel/bucket"
)

// Tag is bucket.Tag for the surface, which does not import package bucket.
type Tag = bucket.Tag

// An entry's tag says what it is, in its lowest bits (kind), and on which level it waits,
// in the others.
//
//	OneShot                       a user's function
//	OneShot|lazy                  of a Timer of AfterFunc
//	Internal|OneShot              of a Future, a key, a Group or Pool.Schedule
//	Internal                      a run of a Job
//	Internal|NoExecutor           of a channel or a ticker
//	Internal|NoExecutor|Disguised of a context
//	Internal|OneShot|NoExecutor   of package purgatory
const (
	// Internal is a task of the wheel's own. It is called under s.mu: by fire when it is due,
	// and by dismiss when close or stop comes first (s.dismissing tells). So
	// whatever it does is one with the state of its entry, and whoever cancels it under
	// s.mu knows that it is neither running nor about to. It must be short, never block,
	// and run no code of a user.
	Internal bucket.Tag = 1 << iota

	// OneShot is an entry that becomes a user's function once. Shutdown waits for it, and
	// the limit counts it. An Internal that is no OneShot is called when the shard is closed,
	// and is off the wheel then. An Internal|OneShot is also called when its entry is canceled
	// (s.canceling tells), since a Timeout or Timer may do that without it.
	OneShot

	// NoExecutor is a task of the wheel's own that has nothing for the executor when it is
	// due. It never waits at the gate.
	NoExecutor

	// Disguised is an entry that has a pointer in disguise instead of a function. If it is a
	// task of the wheel's own, shard.due takes the pointer. Otherwise the pointer is a
	// LazyTask's, which knows the deadline.
	Disguised

	kind       = Internal | OneShot | NoExecutor | Disguised
	levelShift = 4 // the level's lowest bit

	levels       = 1 << (10 - levelShift)
	levelDue     = levels - 1 // on no wheel. Ticks of 1us in 292 years are 54 levels of two slots
	levelWaiting = levels - 2 // on no wheel, but at the gate
)

// isInternal reports whether an entry is a task of the wheel's own.
func isInternal(tag bucket.Tag) bool { return tag&Internal != 0 }

// isLazy reports whether an entry has a LazyTask.
func isLazy(tag bucket.Tag) bool { return tag&(Internal|Disguised) == Disguised }

// needsExecutor reports whether an entry has something for the executor when it is due.
func needsExecutor(tag bucket.Tag) bool { return tag&NoExecutor == 0 }

// LazyTask is a function that keeps its own deadline, so that it can be pushed back without
// a lock: that of a Timer of AfterFunc, from its first Reset on. To push it back is one
// compare-and-swap, and touches nothing of the shard. So all processors can push back the
// timers of one shard at the same time. The entry on the wheel has a pointer to the LazyTask.
// So the flush that comes to the entry finds the new deadline, and adds the entry again.
//
// The word has the tick of the deadline in its upper bits. The lowest pushBits count how
// often it was pushed back since the shard last counted. The zero word says that the entry
// has the deadline, and that a change takes the lock. So it is while the entry is not on a
// wheel: when it is due, waits at the gate, or is not pending. And so it is once the shard
// is closed.
//
// The invariant: the entry waits in a bucket that expires at or before the deadline.
// Without the lock, the deadline only grows, the word does not become zero, and a word of
// zero does not change. So whoever holds the lock may place the entry by a deadline that is no longer the
// last one. Before it takes the entry off the wheel, it makes the word zero.
type LazyTask struct {
	F    func()
	Word atomic.Uint64
}

// A tick has 54 bits. The shortest ticks, of 1us, take all of them in 292 years.
const (
	pushBits   = 10
	mostPushes = 1<<pushBits - 1 // the next push takes the lock, and so the shard counts them

	// NotLazy is the word of what only looks like a LazyTask, for ever. A push takes the
	// lock.
	NotLazy = mostPushes
)

// PushBack notes a later deadline, and reports whether it did. It needs no lock.
func (l *LazyTask) PushBack(c *clock, after Delay) bool {
	old := l.Word.Load()
	if old == 0 || after.D <= 0 {
		return false
	}
	deadline := uint64(c.deadline(after.Now, after.D))
	if deadline < old>>pushBits || old&mostPushes == mostPushes {
		return false
	}
	return l.Word.CompareAndSwap(old, deadline<<pushBits|old&mostPushes+1)
}

func deadlineOf(word uint64) int64 { return int64(word >> pushBits) }
func pushesOf(word uint64) int64   { return int64(word & mostPushes) }

// The caller of the methods that follow holds the shard's lock.

// keep gives the deadline to the LazyTask.
func (l *LazyTask) keep(deadline int64) { l.Word.Store(uint64(deadline) << pushBits) }

// deadline returns the deadline, and false if the entry has it.
func (l *LazyTask) deadline() (tick int64, kept bool) {
	w := l.Word.Load()
	return deadlineOf(w), w != 0
}

// giveBack ends keep. It returns the deadline, and the pushes that were not counted yet.
func (l *LazyTask) giveBack() (deadline, pushes int64, kept bool) {
	w := l.Word.Swap(0)
	return deadlineOf(w), pushesOf(w), w != 0
}

// giveBackIf is giveBack if nobody has pushed it back since its word was read. Otherwise
// it does nothing and returns false.
func (l *LazyTask) giveBackIf(read uint64) bool { return l.Word.CompareAndSwap(read, 0) }

// lazyOf returns the LazyTask of an entry that has one. The entry has a pointer to it in
// disguise. With a field more, an entry would take 40 bytes instead of 32.
func lazyOf(task func()) *LazyTask { return Undisguise[LazyTask](task) }

// Disguise returns a pointer that passes for a function. So a field for a function has room
// for either, and what it is in can be smaller. Nobody may call it: something else must
// tell what is in the field. A func value is a pointer. So nothing is converted, and the
// garbage collector sees what it is.
func Disguise[T any](p *T) func() { return *(*func())(unsafe.Pointer(&p)) }

// Undisguise returns the pointer that Disguise was given. The entry's tag must say that f is one.
func Undisguise[T any](f func()) *T { return *(**T)(unsafe.Pointer(&f)) }
