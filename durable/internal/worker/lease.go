package worker

import "time"

// lease is what a worker knows of its own lease.
//
// No handler begins but under a lease that was renewed so short a time ago that nobody
// can have taken its job over. That is looked at where the handler begins, by the age of
// the lease: a process that was frozen, or cut off, must not depend on which of its
// goroutines finds that out first.
type lease struct {
	length  time.Duration
	renewed time.Time // when the last heartbeat that was answered began; compared monotonically
	wall    time.Time // the same by the wall clock
}

func newLease(length time.Duration, renewed time.Time) lease {
	l := lease{length: length}
	l.renew(renewed)
	return l
}

func (l *lease) renew(at time.Time) { l.renewed, l.wall = at, at.Round(0) }

// standing is what may be done under a lease.
type standing int

const (
	sound    standing = iota // handlers may begin
	doubtful                 // not before a heartbeat is answered
	over
)

// at returns how the lease stands. An eighth of it is left for clocks that drift apart,
// and for what comes between the look and the handler's first instruction. By the
// monotonic clock it is over after its length. That clock may stand still while a
// machine is suspended. So where the wall clock says that it is old a heartbeat has to tell:
// to a machine whose wall clock was set that costs no more than the heartbeat.
func (l *lease) at(now time.Time) standing {
	age, old := now.Sub(l.renewed), l.length-l.length/8
	switch {
	case age >= l.length:
		return over
	case age >= old || now.Round(0).Sub(l.wall) >= old:
		return doubtful
	}
	return sound
}
