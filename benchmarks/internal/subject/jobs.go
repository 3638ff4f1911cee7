package subject

import (
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// Jobs runs functions again and again.
type Jobs interface {
	Timers
	// Every runs f after each period, for ever.
	Every(period time.Duration, f func())
}

var timeReset = Subject{
	Name: "time.AfterFunc+Reset",
	Setup: "a function under package time's AfterFunc that resets its own timer, which is what a program " +
		"writes for itself; in the workload of jobs only",
	Kind: JobMaker,
	New:  func(Options) Timers { return timeJobs{stdTimers()} },
}

var wheelJobs = Subject{
	Name:  "wheel.ScheduleAtFixedRate",
	Setup: "tickwheel's jobs, with the defaults; in their workload only",
	Kind:  JobMaker,
	New: func(o Options) Timers {
		w := newWheel(o, timingwheel.Goroutines())
		return jobs{scheduleOn(w), w}
	},
}

type timeJobs struct{ Timers }

func (timeJobs) Every(period time.Duration, f func()) {
	var t *time.Timer
	t = time.AfterFunc(time.Hour, func() {
		f()
		t.Reset(period)
	})
	t.Reset(period) // only now, so that the function knows its timer
}

type jobs struct {
	Timers
	wheel *timingwheel.TimingWheel
}

func (j jobs) Every(period time.Duration, f func()) {
	if _, err := j.wheel.ScheduleAtFixedRate(period, period, f); err != nil {
		panic(err)
	}
}
