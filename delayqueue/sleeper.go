package delayqueue

import "time"

// A sleeper is what the leader of a queue sleeps on. A queue has one sleeper for all its
// leaders. The queue's lock guards it.
type sleeper interface {
	// wakeAfter returns a channel that delivers a value once d has passed, and not
	// before. It takes back what an earlier call has promised. A d that is not positive
	// has passed already.
	wakeAfter(d time.Duration) <-chan time.Time
	// callAfter has f called on a goroutine of its own once d has passed, and not before.
	// It takes back what an earlier call has promised, unless that has passed already. All
	// calls must have the same f. A d that is not positive has passed already.
	callAfter(d time.Duration, f func())
	// stop takes back what callAfter has promised.
	stop()
	// precise reports whether the sleeper wakes up more precisely than the runtime's
	// timers.
	precise() bool
	// close gives back what the system has lent. The sleeper works on without it.
	close()
}

// A coarseSleeper is a timer of the runtime, and is late whenever that is late. A timer
// is kept from sleep to sleep. That of wakeAfter need not be stopped: the runtime holds it
// only while a leader receives from it.
type coarseSleeper struct {
	timer *time.Timer // of wakeAfter; nil until first needed
	alarm *time.Timer // of callAfter; nil until first needed
}

func (s *coarseSleeper) wakeAfter(d time.Duration) <-chan time.Time {
	if s.timer == nil {
		s.timer = time.NewTimer(d)
	} else {
		s.timer.Reset(d)
	}
	return s.timer.C
}

func (s *coarseSleeper) callAfter(d time.Duration, f func()) {
	switch {
	case d <= 0:
		s.stop()
		go f() // sooner than a timer, and cheaper
	case s.alarm == nil:
		s.alarm = time.AfterFunc(d, f)
	default:
		s.alarm.Reset(d)
	}
}

func (s *coarseSleeper) stop() {
	if s.alarm != nil {
		s.alarm.Stop()
	}
}

func (s *coarseSleeper) precise() bool { return false }
func (s *coarseSleeper) close()        {}
