package prometheus

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickwheel/tickwheel/timingwheel"

	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
)

type describe = func(metric, help string, labels ...string) *prometheus.Desc

// describer returns what describes metrics that have the label with that value.
func describer(label, value string) describe {
	return func(metric, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("timingwheel_"+metric, help, labels, prometheus.Labels{label: value})
	}
}

// figures are the metrics of a wheel as a whole.
func figures(describe describe) []metric[timingwheel.Stats] {
	type stats = timingwheel.Stats
	return []metric[stats]{
		{describe("pending", "What waits on the wheel: functions, channel timers, tickers, contexts and jobs."), gauge, func(s *stats) float64 { return float64(s.Pending) }},
		{describe("scheduled_total", "What the wheel has accepted: the sum of expired, stopped, handed back and pending."), counter, func(s *stats) float64 { return float64(s.Scheduled) }},
		{describe("expired_total", "What came due."), counter, func(s *stats) float64 { return float64(s.Expired) }},
		{describe("stopped_total", "What was canceled or stopped before it came due."), counter, func(s *stats) float64 { return float64(s.Stopped) }},
		{describe("handed_back_total", "What was pending when the wheel was stopped."), counter, func(s *stats) float64 { return float64(s.HandedBack) }},
		{describe("resets_total", "What was given another time while it was pending."), counter, func(s *stats) float64 { return float64(s.Reset) }},
		{describe("cascades_total", "Moves of entries to a finer level."), counter, func(s *stats) float64 { return float64(s.Cascaded) }},
		{describe("rejections_total", "What was refused because too much was pending."), counter, func(s *stats) float64 { return float64(s.Rejected) }},
		{describe("caller_runs_total", "Tasks that the driver ran itself because a pool was full."), counter, func(s *stats) float64 { return float64(s.CallerRuns) }},
		{describe("discarded_total", "Tasks that a full pool has discarded, a part of expired."), counter, func(s *stats) float64 { return float64(s.Discarded) }},
		{describe("refusals_total", "Tasks that the executor has refused and goroutines of the wheel have run, a part of expired."), counter, func(s *stats) float64 { return float64(s.Refused) }},
		{describe("panics_total", "Tasks that panicked and were recovered."), counter, func(s *stats) float64 { return float64(s.Panicked) }},
		{describe("wakeups_total", "Wake-ups of the driver from its sleep."), counter, func(s *stats) float64 { return float64(s.Wakeups) }},
		{describe("running", "Tasks that were handed to the executor and have not ended."), gauge, func(s *stats) float64 { return float64(s.Running) }},
		{describe("waiting", "What is due, but waits for room in a pool or for the executor; a part of pending."), gauge, func(s *stats) float64 { return float64(s.Waiting) }},
		{describe("held_up_seconds", "Time for which the executor has been in its present call; no function fires during a call."), gauge, func(s *stats) float64 { return s.HeldUp.Seconds() }},
		{describe("age_seconds", "Time since the wheel was made."), gauge, func(s *stats) float64 { return s.Now.Seconds() }},
		{describe("tick_seconds", "Width of a tick, to which deadlines round up."), gauge, func(s *stats) float64 { return s.Tick.Seconds() }},
		{describe("shards", "Shards of the wheel."), gauge, func(s *stats) float64 { return float64(s.Shards) }},
		{describe("closed", "Whether the wheel was stopped, or is being shut down."), gauge, func(s *stats) float64 { return oneIf(s.Closed) }},
		{describe("precise", "Whether the driver sleeps on a timer of high resolution."), gauge, func(s *stats) float64 { return oneIf(s.Precise) }},
		{describe("arena_entries", "Room for so many pending, of 32 bytes each."), gauge, func(s *stats) float64 { return float64(s.Arena.Capacity) }},
		{describe("arena_free_entries", "Room for so many pending that is free."), gauge, func(s *stats) float64 { return float64(s.Arena.Free) }},
	}
}

// levels are the metrics of each level.
func levels(describe describe) []metric[timingwheel.LevelStats] {
	type stats = timingwheel.LevelStats
	return []metric[stats]{
		{describe("level_tick_seconds", "Width of a slot of the level.", "level"), gauge, func(l *stats) float64 { return l.Tick.Seconds() }},
		{describe("level_interval_seconds", "Width of the whole level.", "level"), gauge, func(l *stats) float64 { return l.Interval.Seconds() }},
		{describe("level_slots", "Slots of the level, in each shard.", "level"), gauge, func(l *stats) float64 { return float64(l.Slots) }},
		{describe("level_current_time_seconds", "Clock of the level, since the wheel was made; it stands while the wheel is idle.", "level"), gauge, func(l *stats) float64 { return l.CurrentTime.Seconds() }},
		{describe("level_buckets", "Buckets of the level that are in use.", "level"), gauge, func(l *stats) float64 { return float64(l.Buckets) }},
		{describe("level_entries", "What waits on the level.", "level"), gauge, func(l *stats) float64 { return float64(l.Entries) }},
		{describe("level_cascades_total", "Entries that have left the level for a finer one.", "level"), counter, func(l *stats) float64 { return float64(l.Cascaded) }},
	}
}

// pools are the metrics of a pool.
func pools(describe describe) []metric[pool.Stats] {
	type stats = pool.Stats
	return []metric[stats]{
		{describe("pool_workers", "Tasks that the pool can run at once."), gauge, func(s *stats) float64 { return float64(s.Workers) }},
		{describe("pool_queue_capacity", "Tasks that can wait in the pool."), gauge, func(s *stats) float64 { return float64(s.Queue) }},
		{describe("pool_running", "Tasks that a worker runs."), gauge, func(s *stats) float64 { return float64(s.Running) }},
		{describe("pool_queued", "Tasks that wait in the pool."), gauge, func(s *stats) float64 { return float64(s.Queued) }},
		{describe("pool_waiting", "Tasks that wait on their wheels for room in the pool."), gauge, func(s *stats) float64 { return float64(s.Waiting) }},
		{describe("pool_closed", "Whether the pool was closed, or is being shut down."), gauge, func(s *stats) float64 { return oneIf(s.Closed) }},
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
