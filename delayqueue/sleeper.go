package delayqueue

import "time"

// A sleeper is what the leader of a queue sleeps on. A queue has one sleeper for all its
// leaders. The queue's lock guards it.
type sleeper interface {
	// wakeAfter returns a channel that delivers a value once d has passed, and not
	// before. It takes back what an earlier call has promised. A d that is not positive
	// has passed already.
	wakeAfter(d time.Duration) <-chan time.Time
	// precise reports whether the sleeper wakes up more precisely than the runtime's
	// timers.
	precise() bool
	// close gives back what the system has lent. The sleeper works on without it.
	close()
}

// A coarseSleeper is a timer of the runtime, and is late whenever that is late. The timer
// is kept from sleep to sleep. It need not be stopped: the runtime holds it only while a
// leader receives from it.
type coarseSleeper struct {
	timer *time.Timer // nil until first needed
}

func (s *coarseSleeper) wakeAfter(d time.Duration) <-chan time.Time {
	if s.timer == nil {
		s.timer = time.NewTimer(d)
	} else {
		s.timer.Reset(d)
	}
	return s.timer.C
}

func (s *coarseSleeper) precise() bool { return false }
func (s *coarseSleeper) close()        {}
