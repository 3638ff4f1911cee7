package subject

import "time"

// none starts no timers: what it costs is the load generator's own.
var none = Subject{
	Name: None,
	Setup: "starts no timers: its row is the load generator's own cost, which is in every other row of " +
		"that table too",
	New: func(Options) Timers {
		return timers(functions[int]{
			add:    func(time.Duration, func()) int { return 0 },
			cancel: func(int) {},
			reset:  func(int, time.Duration) {},
			stop:   func() {},
		})
	},
}
