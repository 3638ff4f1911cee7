package subject

import (
	"time"

	luo "github.com/RussellLuo/timingwheel"
)

const luoSlots = 512 // as many as the wheel's, so that both cascade alike

var russellLuo = Subject{
	Name: "RussellLuo",
	Setup: "github.com/RussellLuo/timingwheel v0.0.0-20220218152713-54845bda3108: ticks of 1 ms, the " +
		"finest it takes, and 512 slots. Has no Reset. Rounds deadlines down",
	FinestTick: time.Millisecond,
	New: func(o Options) Timers {
		w := luo.NewTimingWheel(o.tick(), int64(o.slots(luoSlots)))
		w.Start()
		return timers(functions[*luo.Timer]{
			add:    w.AfterFunc,
			cancel: func(t *luo.Timer) { t.Stop() },
			stop:   w.Stop,
		})
	},
}
