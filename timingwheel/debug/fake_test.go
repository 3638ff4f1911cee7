package debug

import (
	"io"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// fake is a wheel with made-up figures. It counts the requests.
type fake struct {
	stats    timingwheel.Stats
	snapshot timingwheel.Snapshot

	cost      time.Duration // of a snapshot
	statsCost time.Duration

	asked     atomic.Int64
	snapshots atomic.Int64
	profiles  atomic.Int64
}

func (f *fake) Stats() timingwheel.Stats {
	f.asked.Add(1)
	time.Sleep(f.statsCost)
	return f.stats
}

func (f *fake) Now() time.Time { return time.Now() }

func (f *fake) WriteProfile(out io.Writer) error {
	f.profiles.Add(1)
	_, err := io.WriteString(out, "profile")
	return err
}

func (f *fake) Snapshot(next int) timingwheel.Snapshot {
	f.snapshots.Add(1)
	time.Sleep(f.cost)
	return f.snapshot
}

// newFake has two levels of 512 slots, and a third of the entries in each slot's number.
func newFake() *fake {
	f := &fake{}
	s := &f.stats
	s.Counts = timingwheel.Counts{Pending: 1234, Scheduled: 10000, Expired: 6000, Stopped: 2766, Reset: 55, Cascaded: 4444, Rejected: 3}
	s.Discarded, s.Refused, s.Panicked, s.Waiting, s.Running, s.Wakeups = 2, 4, 1, 5, 7, 900
	s.Now, s.Tick, s.Shards, s.ProfileRate = 83_456_789_012, time.Millisecond, 2, 512
	s.Lateness.Counts[10], s.Lateness.Counts[11] = 5900, 100
	s.Lateness.Max = 1_700_000
	s.Lateness.P50, s.Lateness.P99 = s.Lateness.Quantile(0.5), s.Lateness.Quantile(0.99)
	f.snapshot.Now, f.snapshot.Pending, f.snapshot.Due = s.Now, s.Pending, 1
	tick := time.Millisecond
	for i, entries := range []int64{234, 1000} {
		occupied := make([]int32, 512)
		for slot := range occupied {
			occupied[slot] = int32(slot / 3)
		}
		level := timingwheel.LevelStats{Tick: tick, Interval: 512 * tick, Slots: 512, CurrentTime: s.Now.Truncate(tick),
			Buckets: 100 + i, Entries: entries, Cascaded: 4444 * int64(i)}
		s.Levels = append(s.Levels, level)
		f.snapshot.Levels = append(f.snapshot.Levels, timingwheel.LevelOccupancy{LevelStats: level, Hand: 17 + i, Occupied: occupied})
		tick *= 512
	}
	return f
}
