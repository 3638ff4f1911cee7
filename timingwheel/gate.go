package timingwheel

import "github.com/tickwheel/tickwheel/bucket"

// gate stands between the wheel and an executor that cannot take every task at once. What
// does not get through stays pending: it waits on its shard, in the order in which it
// came due. The handoff and the Pool are gates; the default executor has none.
type gate interface {
	// lets reports whether every entry would get through that comes due in the present
	// slice, without hold. A gate that cannot say it at once for all returns false. The
	// driver calls it before a slice, with the lock of the shard. To call hold for each
	// entry took 34 of the 600 instructions of firing it inline.
	lets() bool

	// hold decides about an entry that is due and in no bucket. Either it makes the entry
	// wait (shard.wait), and returns true. Or it takes room for one task, lets the entry
	// pass, and returns false. The caller holds s.mu.
	hold(s *shard, i bucket.Index) bool

	// release gives back the room of an entry that turned out to have no task. The caller
	// holds the lock of the shard, and has look called afterwards.
	release()

	// pass gets the tasks that have passed, of the wheel of r. It may hand them over at
	// once. The caller holds the shard's lock.
	pass(e *expired, r *runner)

	// look is called after a slice of d in which something was held, or gave its room
	// back: there may be room by now. No lock is held.
	look(d *driver)

	// leave is called when a wheel has stopped.
	leave(d *driver)
}
