package engine

import "github.com/tickwheel/tickwheel/bucket"

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
	// LazyTask's, which knows the deadline: see pushback.go.
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
