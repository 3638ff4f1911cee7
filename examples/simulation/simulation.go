package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// The service and its users.
const (
	tick        = 100 * time.Millisecond
	betweenTwo  = 5 * time.Minute // clicks, on average
	clicks      = 12              // of a visit, on average
	untilReturn = 8 * time.Hour   // of a user who has gone away, on average
	morning     = 6               // the hour before which nobody comes back
)

// simulation is the service. All of it runs inline on the wheel, one function at a time, so
// nothing needs a lock.
type simulation struct {
	wheel *timingwheel.TimingWheel
	limit time.Duration
	r     *rand.Rand
	out   io.Writer

	online  int
	clicks  int // since the last line
	logins  int
	expired int
	wrong   int // sessions that ended at the wrong time
}

// hourly is the Scheduler of the lines.
type hourly struct{}

func (hourly) Next(prev time.Time) time.Time { return prev.Truncate(time.Hour).Add(time.Hour) }

func newSimulation(users int, limit time.Duration, seed uint64, out io.Writer) *simulation {
	s := &simulation{
		limit: limit,
		r:     rand.New(rand.NewPCG(seed, 0)),
		out:   out,
		wheel: timingwheel.New(
			timingwheel.WithManualClock(time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)),
			timingwheel.WithExecutor(timingwheel.Inline()), // one function after the other
			timingwheel.WithShards(1),                      // in the same order each time
			timingwheel.WithTick(tick),
		),
	}
	fmt.Fprintf(out, "%8s%10s%10s%10s\n", "", "online", "logins", "clicks")
	if _, err := s.wheel.ScheduleFunc(hourly{}, s.line); err != nil {
		panic(err) // the wheel is not stopped
	}
	for range users {
		u := newUser(s)
		s.after(s.away(), u.login)
	}
	return s
}

// after schedules a function of a user.
func (s *simulation) after(d time.Duration, f func()) timingwheel.Timeout {
	timeout, err := s.wheel.Schedule(d, f)
	if err != nil {
		panic(err) // the wheel is not stopped, and has no limit
	}
	return timeout
}

// away returns how long a user who goes away now does not come back: nobody does at night.
func (s *simulation) away() time.Duration {
	back := s.wheel.Now().Add(s.about(untilReturn))
	if back.Hour() < morning {
		back = back.Add(morning * time.Hour)
	}
	return back.Sub(s.wheel.Now())
}

// about returns a random time with this average, as long as the last click is no hint when
// the next will come.
func (s *simulation) about(average time.Duration) time.Duration {
	return time.Duration(s.r.ExpFloat64() * float64(average))
}

// line prints what the hour has seen.
func (s *simulation) line() {
	fmt.Fprintf(s.out, "%8s%10d%10d%10d\n", s.wheel.Now().Format("Mon 15h"), s.online, s.logins, s.clicks)
	s.clicks = 0
}

// print prints what it took.
func (s *simulation) print(took time.Duration) {
	st := s.wheel.Stats()
	virtual := st.Now
	fmt.Fprintf(s.out, `
%v of virtual time took %v: %.0f times as fast.
%d timers fired, %d were pushed back, %d are pending.
%d sessions, %d of them ended after %v without a click, %d go on.
`, virtual, took.Round(time.Millisecond), float64(virtual)/float64(took),
		st.Expired, st.Reset, st.Pending, s.logins, s.expired, s.limit, s.online)
}

// check returns an error if a session did not end when it had to.
func (s *simulation) check() error {
	if lost := s.logins - s.expired - s.online; s.wrong+lost > 0 {
		return fmt.Errorf("%d sessions ended at the wrong time, %d were lost", s.wrong, lost)
	}
	return nil
}
