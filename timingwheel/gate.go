package timingwheel

import "github.com/tickwheel/tickwheel/bucket"

// gate stands between the wheel and an executor that cannot take every task at once. What
// does not get through stays pending: it waits on its shard, in the order in which it came
// due. The caller and the Pool are gates; the default executor has none.
type gate interface {
	// hold makes an entry that is due and in no bucket wait (shard.wait), and returns true;
	// or it takes room for one task, lets the entry pass, and returns false. The caller holds
	// s.mu.
	hold(s *shard, i bucket.Index) bool

	// claim takes room for one task, if there is some. Only a gate whose waiting entries Drive
	// takes has to implement it. The caller holds the lock of the shard.
	claim() bool

	// unclaim gives back the room of an entry that turned out to have no task. The caller holds
	// the lock of the shard, and sees to it that look is called.
	unclaim()

	// pass may hand over what has passed, of the wheel of r. The caller holds the shard's lock.
	pass(e *expired, r *runner)

	// look is called after a slice of d in which something was held or gave its room back, with
	// no lock held. There may be room by now.
	look(d *driver)

	// leave is called when a wheel has stopped.
	leave(d *driver)
}
