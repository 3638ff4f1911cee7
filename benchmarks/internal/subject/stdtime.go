package subject

import "time"

var stdtime = Subject{
	Name:  Baseline,
	Setup: "package time as it is; every ratio is to this row, in the same round",
	New:   func(Options) Timers { return stdTimers() },
}

func stdTimers() Timers {
	return timers(functions[*time.Timer]{
		add:    time.AfterFunc,
		cancel: func(t *time.Timer) { t.Stop() },
		reset:  func(t *time.Timer, d time.Duration) { t.Reset(d) },
		stop:   func() {},
	})
}
