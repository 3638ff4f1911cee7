package delayqueue

import "time"

// A sleeper is what the leader of a queue sleeps on. A queue has one, which leader
// after leader uses, under the queue's lock.
type sleeper interface {
	// wakeAfter returns a channel that delivers a value once d has passed, and not
	// before. It takes back whatever it has promised earlier. A d that is not
	// positive has passed.
	wakeAfter(d time.Duration) <-chan time.Time
	// precise reports whether more than the runtime's timers is at work.
	precise() bool
	// close gives back what the system has lent. The sleeper works on, without it.
	close()
}

// A coarseSleeper is a timer of the runtime, and late by what that is late. It is
// kept from sleep to sleep: only while a leader receives from it does the runtime
// hold it, so it need not be stopped.
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
