// Package prometheus shows timing wheels, their pools and purgatories to Prometheus: what
// a wheel has done, what it holds and how late it is; how busy a pool is; and what is
// parked.
//
//	import wheelmetrics "github.com/tickwheel/tickwheel/timingwheel/prometheus"
//
//	registry.MustRegister(
//		wheelmetrics.NewCollector(w, "sessions"),
//		wheelmetrics.NewPoolCollector(pool, "workers"))
//
// The package has the same name as the package of client_golang that is imported next to
// it. A program uses this one in one line, so give this one another name, as above. It is
// a module of its own, so that client_golang reaches only the programs that want it. It
// registers nothing by itself.
//
// Every metric of a wheel has the label wheel, with the name that was given to
// [NewCollector]. The metrics of a level also have the label level, "0" for the finest.
// All are fields of timingwheel.Stats; its documentation says what exactly they count:
//
//	timingwheel_pending                     gauge
//	timingwheel_scheduled_total             counter; at any time the sum of
//	                                        expired, stopped, handed back and pending
//	timingwheel_expired_total               counter
//	timingwheel_stopped_total               counter
//	timingwheel_handed_back_total           counter
//	timingwheel_resets_total                counter
//	timingwheel_cascades_total              counter, moves of entries to a finer level
//	timingwheel_rejections_total            counter
//	timingwheel_caller_runs_total           counter
//	timingwheel_discarded_total             counter
//	timingwheel_refusals_total              counter
//	timingwheel_panics_total                counter
//	timingwheel_wakeups_total               counter
//	timingwheel_running                     gauge
//	timingwheel_waiting                     gauge, a part of timingwheel_pending
//	timingwheel_held_up_seconds             gauge, 0 while nothing holds the driver up
//	timingwheel_age_seconds                 gauge
//	timingwheel_tick_seconds                gauge
//	timingwheel_shards                      gauge
//	timingwheel_closed                      gauge, 0 or 1
//	timingwheel_precise                     gauge, 0 or 1
//	timingwheel_arena_entries               gauge, the capacity; 32 bytes an entry
//	timingwheel_arena_free_entries          gauge
//	timingwheel_lateness_seconds            histogram
//	timingwheel_level_tick_seconds          gauge
//	timingwheel_level_interval_seconds      gauge
//	timingwheel_level_slots                 gauge
//	timingwheel_level_current_time_seconds  gauge, behind timingwheel_age_seconds
//	timingwheel_level_buckets               gauge
//	timingwheel_level_entries               gauge
//	timingwheel_level_cascades_total        counter, of entries that left the level
//
// The words pending, expired, stopped and resets are those of golang/go#75956, which proposes
// metrics for package time; scheduled is its total.
//
// Every metric of a pool has the label pool, with the name that was given to
// [NewPoolCollector]. All are fields of pool.Stats:
//
//	timingwheel_pool_workers                gauge
//	timingwheel_pool_queue_capacity         gauge
//	timingwheel_pool_running                gauge, at most timingwheel_pool_workers
//	timingwheel_pool_queued                 gauge, at most timingwheel_pool_queue_capacity
//	timingwheel_pool_waiting                gauge, on the wheels of the pool
//	timingwheel_pool_closed                 gauge, 0 or 1
//
// The first to look at is the lateness:
//
//	histogram_quantile(0.99, rate(timingwheel_lateness_seconds_bucket[5m]))
//
// Its buckets have the bounds of timingwheel.Histogram: 1us times powers of two. A bucket
// ends below its bound, not at it: what is late by exactly 2us counts as more. There is
// no native histogram. Its bounds are powers of two of a second, so the buckets would
// have to be split. There is no metric for the lateness of the last minute, because
// Prometheus computes rates itself.
//
// Then comes an executor that holds the driver up. This alert tells after ten seconds:
//
//	timingwheel_held_up_seconds > 10
//
// The function that does it is no label. Prometheus keeps a series for each value of a
// label, and there may be any number of functions. The log names the function, and so do
// the page of package timingwheel/debug and HeldUpBy of timingwheel.Stats.
package prometheus

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// collector holds the descriptions of its metrics. It keeps no figures: those are the
// wheel's.
type collector struct {
	wheel    *timingwheel.TimingWheel
	figures  []metric[timingwheel.Stats]
	levels   []metric[timingwheel.LevelStats]
	lateness *prometheus.Desc
}

// metric is one number out of an S.
type metric[S any] struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(s *S) float64
}

// NewCollector returns a Collector of the wheel's figures, for a prometheus.Registerer.
// Name is the value of their label wheel. To show several wheels, register a Collector
// for each, with different names. If two have the same name, a registry refuses the
// second.
//
// Each scrape calls the wheel's Stats once, which costs some microseconds and disturbs
// nobody. The wheel may be stopped before or after: then its counters stand still, and it
// has no levels. Collect is safe for concurrent use. The wheel is not garbage as long as
// the Collector is registered. NewCollector panics on a nil wheel.
func NewCollector(w *timingwheel.TimingWheel, name string) prometheus.Collector {
	if w == nil {
		panic("prometheus: NewCollector: nil wheel")
	}
	describe := describer("wheel", name)
	return &collector{
		wheel:    w,
		figures:  figures(describe),
		levels:   levels(describe),
		lateness: describe("lateness_seconds", "By how much what came due was late, after the tick to which its deadline rounds up."),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.figures {
		ch <- m.desc
	}
	for _, m := range c.levels {
		ch <- m.desc
	}
	ch <- c.lateness
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	st := c.wheel.Stats()
	for _, m := range c.figures {
		ch <- m.of(&st)
	}
	for i := range st.Levels {
		for _, m := range c.levels {
			ch <- m.of(&st.Levels[i], strconv.Itoa(i))
		}
	}
	ch <- histogram(c.lateness, &st.Lateness)
}

func (m metric[S]) of(s *S, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(m.desc, m.kind, m.value(s), labels...)
}

// histogram turns the counts of the buckets into cumulative ones. The last bucket has no
// bound: only the total contains it.
func histogram(desc *prometheus.Desc, h *timingwheel.Histogram) prometheus.Metric {
	below := uint64(0)
	buckets := make(map[float64]uint64, timingwheel.HistogramBuckets-1)
	for i, n := range h.Counts[:timingwheel.HistogramBuckets-1] {
		below += uint64(n)
		buckets[h.UpperBound(i).Seconds()] = below
	}
	return prometheus.MustNewConstHistogram(desc, uint64(h.Total()), h.Sum.Seconds(), buckets)
}
