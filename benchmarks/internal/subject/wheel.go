package subject

import (
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

const (
	wheelSlots = 512
	wheelTick  = time.Microsecond // the least that WithTick takes
)

var wheelSchedule = Subject{
	Name: "wheel.Schedule",
	Setup: "tickwheel's Schedule, Timeout.Cancel and Timeout.Reset, with the defaults: 1 ms, 512 slots, " +
		"the executor Goroutines",
	FinestTick: wheelTick,
	New:        func(o Options) Timers { return schedule(o, timingwheel.Goroutines()) },
}

var wheelScheduleInline = Subject{
	Name:       "wheel.Schedule+Inline",
	Setup:      "the same with the executor Inline; where nothing fires it is the row above, and left out",
	FinestTick: wheelTick,
	OneByOne:   true,
	New:        func(o Options) Timers { return schedule(o, timingwheel.Inline()) },
}

// preciseTick is the tick that WithPreciseWakeups is for: at a millisecond, the tick
// would be most of the lateness.
const preciseTick = 100 * time.Microsecond

var wheelSchedulePrecise = Subject{
	Name: "wheel.Schedule+Precise",
	Setup: "the same as wheel.Schedule with WithPreciseWakeups and ticks of 100 us, whatever those of the " +
		"others are; in the workloads of lateness and idleness only, since it differs in nothing else",
	New: func(Options) Timers {
		return schedule(Options{Tick: preciseTick}, timingwheel.Goroutines(), timingwheel.WithPreciseWakeups())
	},
}

var wheelAfterFunc = Subject{
	Name:       "wheel.AfterFunc",
	Setup:      "tickwheel's AfterFunc, Timer.Stop and Timer.Reset, with the defaults",
	FinestTick: wheelTick,
	New:        func(o Options) Timers { return afterFunc(o, timingwheel.Goroutines()) },
}

var wheelAfterFuncInline = Subject{
	Name:       "wheel.AfterFunc+Inline",
	Setup:      "the same with the executor Inline",
	FinestTick: wheelTick,
	OneByOne:   true,
	New:        func(o Options) Timers { return afterFunc(o, timingwheel.Inline()) },
}

func newWheel(o Options, e timingwheel.Executor, more ...timingwheel.Option) *timingwheel.TimingWheel {
	return timingwheel.New(append(more, timingwheel.WithTick(o.tick()), timingwheel.WithShards(o.Shards),
		timingwheel.WithWheelSize(o.slots(wheelSlots)), timingwheel.WithExecutor(e))...)
}

func schedule(o Options, e timingwheel.Executor, more ...timingwheel.Option) Timers {
	return scheduleOn(newWheel(o, e, more...))
}

func scheduleOn(w *timingwheel.TimingWheel) Timers {
	return timers(functions[timingwheel.Timeout]{
		add: func(d time.Duration, f func()) timingwheel.Timeout {
			t, err := w.Schedule(d, f)
			if err != nil {
				panic(err)
			}
			return t
		},
		cancel: func(t timingwheel.Timeout) { t.Cancel() },
		reset:  func(t timingwheel.Timeout, d time.Duration) { t.Reset(d) },
		stop:   func() { w.Stop() },
	})
}

func afterFunc(o Options, e timingwheel.Executor) Timers {
	w := newWheel(o, e)
	return timers(functions[*timingwheel.Timer]{
		add:    w.AfterFunc,
		cancel: func(t *timingwheel.Timer) { t.Stop() },
		reset:  func(t *timingwheel.Timer, d time.Duration) { t.Reset(d) },
		stop:   func() { w.Stop() },
	})
}
