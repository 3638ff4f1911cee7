package timingwheel

import "time"

// Snapshot is what [TimingWheel.Snapshot] returns: what is pending, and where.
type Snapshot struct {
	Now       time.Duration // since the wheel was made
	Pending   int64
	Due       int64            // due, but not yet taken by the driver
	Cascading int64            // in buckets that are being flushed
	Levels    []LevelOccupancy // the finest first
	Next      []time.Time      // the next deadlines, the earliest first
}

// LevelOccupancy is a level with what each of its slots holds, of all shards together.
type LevelOccupancy struct {
	LevelStats
	Hand     int     // the slot of CurrentTime
	Occupied []int32 // how many entries each slot holds
}
