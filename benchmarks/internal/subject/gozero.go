package subject

import (
	"sync/atomic"
	"time"

	"github.com/zeromicro/go-zero/core/collection"
)

// goZeroSlots is a minute of ticks of 1 ms: each tick walks all entries of its
// slot, those of later rounds included, and with fewer slots a million pending
// entries would cost more to walk than to run.
const goZeroSlots = 1 << 16

var goZero = Subject{
	Name: "go-zero",
	Setup: "github.com/zeromicro/go-zero v1.10.3, collection.TimingWheel: an interval of 1 ms and 65,536 " +
		"slots (it is made for a second and 300). A task has a key, here a number that counts up; cancel " +
		"is RemoveTimer, reset is MoveTimer. All goes through one goroutine, and a removed task stays in " +
		"its slot until the slot's turn. Tasks of a slot run one after the other. Rounds deadlines down, " +
		"and counts ticks instead of reading the clock: each tick that it misses, on a busy machine or " +
		"during a collection, makes all that is pending later",
	FinestTick: 100 * time.Microsecond, // of those that the workloads use
	Most:       1_000_000,
	Why:        "an add takes microseconds, and memory is several times that of the others",
	OneByOne:   true,
	New: func(o Options) Timers {
		w, err := collection.NewTimingWheel(o.tick(), o.slots(goZeroSlots), func(_, task any) { task.(func())() })
		if err != nil {
			panic(err)
		}
		var keys atomic.Int64
		return timers(functions[int64]{
			add: func(d time.Duration, f func()) int64 {
				key := keys.Add(1)
				// A delay that is not positive is an error here, and due now elsewhere.
				if err := w.SetTimer(key, f, max(d, 1)); err != nil {
					panic(err)
				}
				return key
			},
			cancel: func(key int64) { _ = w.RemoveTimer(key) },
			reset:  func(key int64, d time.Duration) { _ = w.MoveTimer(key, max(d, 1)) },
			stop:   w.Stop,
		})
	},
}
