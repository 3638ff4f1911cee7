package workload

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
	"github.com/tickwheel/tickwheel/benchmarks/internal/result"
	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
)

// jobs are functions that run again and again.
func jobs(size Size) Workload {
	n := pick(size, 500_000, 200_000, 100)
	period := pick(size, time.Second, time.Second, 20*time.Millisecond)
	spell := pick(size, 3*time.Second, time.Second, 40*time.Millisecond)
	const config = "period=1s"
	return Workload{
		Name:  "Jobs",
		Title: "Recurring jobs",
		Shows: "There are " + Count(n) + " jobs of a period of " + period.String() + ", begun all over one " +
			"period, each of which adds one to a counter. CPU is the process's over " + spell.String() +
			", for each run. Where a machine is too slow for all of them, runs/s says so.",
		Rounds: pick(size, 3, 2, 1),
		Share:  pick(size, 40*time.Second, 10*time.Second, time.Second),
		Cases: []Case{{
			Name: config, Configs: []string{config},
			Timeout: period + spell + time.Minute, Without: only(subject.JobMaker),
			Run: func(s subject.Subject, emit Emit) {
				runs, cpu := runJobs(s.New(subject.Options{}).(subject.Jobs), n, period, spell)
				emit(config, runs, n, result.Value{Value: ns(cpu, runs), Unit: "cpu-ns/run"},
					result.Value{Value: float64(runs) / spell.Seconds(), Unit: "runs/s"},
					result.Value{Value: measure.PeakResident() / 1e6, Unit: "peak-MB"})
			},
		}},
		Tables: []Table{{Caption: Count(n) + " jobs", Columns: []Column{
			{Head: "CPU ns a run (ratio)", Config: config, Unit: "cpu-ns/run", Ratio: true},
			{Head: "runs/s", Config: config, Unit: "runs/s"},
			{Head: "memory MB", Config: config, Unit: "peak-MB"},
		}}},
		Headlines: []Headline{{
			Work: Count(n) + " jobs of " + period.String() + ": CPU of a run", Subject: "wheel.ScheduleAtFixedRate",
			Config: config, Unit: "cpu-ns/run",
		}},
	}
}

// runJobs returns how many runs there have been in a spell, and their processor time.
func runJobs(t subject.Jobs, n int, period, spell time.Duration) (ran int, cpu time.Duration) {
	var runs atomic.Int64
	job := func() { runs.Add(1) }
	startOver(n, period, func() { t.Every(period, job) })
	time.Sleep(period)
	measure.Settle()
	before, first := measure.CPU(), runs.Load()
	time.Sleep(spell)
	after := measure.CPU()
	ran = int(runs.Load() - first)
	if ran == 0 {
		tooSlow("no job has run in %v", spell)
	}
	runtime.KeepAlive(t)
	return ran, after.CPU - before.CPU
}
