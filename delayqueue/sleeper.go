package delayqueue

import "time"

// A sleeper is the alarm of a queue. The queue's lock guards it.
type sleeper interface {
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

// A coarseSleeper is a timer of the runtime, and is late whenever that is late.
type coarseSleeper struct {
	alarm *time.Timer // nil until first needed
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
