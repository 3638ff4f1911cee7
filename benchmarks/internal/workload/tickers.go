package workload

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
	"github.com/tickwheel/tickwheel/benchmarks/internal/result"
	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
)

// tickers are heartbeats: each has a goroutine that receives.
func tickers(size Size) Workload {
	n := pick(size, 100_000, 50_000, 100)
	period := pick(size, time.Second, time.Second, 20*time.Millisecond)
	spell := pick(size, 3*time.Second, time.Second, 40*time.Millisecond)
	const config = "receivers=each"
	return Workload{
		Name:  "Tickers",
		Title: "Tickers",
		Shows: "There are " + Count(n) + " tickers of " + period.String() + ", begun all over one period, each " +
			"with a goroutine that receives. CPU is the process's over " + spell.String() + ", for each tick " +
			"received: most of it goes to waking the goroutines.",
		Rounds: pick(size, 3, 2, 1),
		Share:  pick(size, 35*time.Second, 10*time.Second, time.Second),
		Cases: []Case{{
			Name: config, Configs: []string{config},
			Timeout: period + spell + 20*time.Second, Without: only(subject.TickerMaker),
			Run: func(s subject.Subject, emit Emit) {
				t := s.New(subject.Options{}).(subject.Tickers)
				ticks, cpu := receiveTicks(t, n, period, spell)
				emit(config, ticks, n, result.Value{Value: ns(cpu, ticks), Unit: "cpu-ns/tick"},
					result.Value{Value: measure.PeakResident() / 1e6, Unit: "peak-MB"})
			},
		}},
		Tables: []Table{{Caption: Count(n) + " tickers", Columns: []Column{
			{Head: "CPU ns a tick (ratio)", Config: config, Unit: "cpu-ns/tick", Ratio: true},
			{Head: "memory MB", Config: config, Unit: "peak-MB"},
		}}},
		Headlines: []Headline{{
			Work: Count(n) + " tickers of " + period.String() + ": CPU of a tick", Subject: "wheel.NewTicker",
			Config: config, Unit: "cpu-ns/tick",
		}},
	}
}

// receiveTicks returns how many ticks have been received in a spell, and what processor
// time that took.
func receiveTicks(t subject.Tickers, n int, period, spell time.Duration) (ticks int, cpu time.Duration) {
	var received atomic.Int64
	var receivers sync.WaitGroup
	end := make(chan struct{})
	startOver(n, period, func() {
		c, stop := t.NewTicker(period)
		receivers.Go(func() {
			defer stop()
			for {
				select {
				case <-c:
					received.Add(1)
				case <-end:
					return
				}
			}
		})
	})
	time.Sleep(period) // until each has ticked once
	measure.Settle()
	before, first := measure.CPU(), received.Load()
	time.Sleep(spell)
	after := measure.CPU()
	ticks = int(received.Load() - first)
	close(end)
	receivers.Wait()
	if ticks == 0 {
		tooSlow("no ticker has ticked in %v", spell)
	}
	return ticks, after.CPU - before.CPU
}
