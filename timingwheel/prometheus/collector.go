// Package prometheus shows a timing wheel to Prometheus: what it has done, what it holds,
// and how late it is; and a purgatory, see [NewPurgatoryCollector].
//
//	import wheelmetrics "github.com/tickwheel/tickwheel/timingwheel/prometheus"
//
//	registry.MustRegister(wheelmetrics.NewCollector(w, "sessions"))
//
// The package has the name of its folder, and so that of the package of client_golang that
// is imported next to it; this one is used in one line, so rename this one. It is a module
// of its own, since who does not need it should not have client_golang among what they
// depend on. It registers nothing by itself.
//
// Every metric has the label wheel, with the name that was given to [NewCollector]; those
// of a level have the label level besides, "0" for the finest. They are the fields of
// timingwheel.Stats, whose documentation says what exactly they count:
//
//	timingwheel_pending                     gauge
//	timingwheel_scheduled_total             counter; at any time the sum of
//	                                        fired, cancelled, handed back and pending
//	timingwheel_fired_total                 counter
//	timingwheel_cancelled_total             counter
//	timingwheel_handed_back_total           counter
//	timingwheel_resets_total                counter
//	timingwheel_cascades_total              counter, of entries that moved to a finer level
//	timingwheel_rejections_total            counter
//	timingwheel_caller_runs_total           counter
//	timingwheel_discarded_total             counter
//	timingwheel_panics_total                counter
//	timingwheel_wakeups_total               counter
//	timingwheel_running                     gauge
//	timingwheel_age_seconds                 gauge
//	timingwheel_tick_seconds                gauge
//	timingwheel_shards                      gauge
//	timingwheel_stopped                     gauge, 0 or 1
//	timingwheel_precise                     gauge, 0 or 1
//	timingwheel_arena_entries               gauge, room for so many; 32 bytes each
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
// The first to look at is the lateness:
//
//	histogram_quantile(0.99, rate(timingwheel_lateness_seconds_bucket[5m]))
//
// Its buckets have the bounds of timingwheel.Histogram, 1us times powers of two, and end
// below the bound rather than at it: what is late by exactly 2us counts as more. There is
// no native histogram, whose bounds are powers of two of a second and would need the
// buckets to be split.
package prometheus

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// collector has what describes its metrics, and keeps no figures: those are the wheel's.
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
// Name is the value of their label wheel. To show several wheels, register a Collector for
// each, under different names; of two of one name a registry takes only the first.
//
// Each scrape calls the wheel's Stats once, which costs some microseconds and disturbs
// nobody. The wheel may be stopped before or after: its counters then stand, and its levels
// are gone. Collect is safe for concurrent use. As long as the Collector is registered the
// wheel is not garbage. NewCollector panics on a nil wheel.
func NewCollector(w *timingwheel.TimingWheel, name string) prometheus.Collector {
	if w == nil {
		panic("prometheus: NewCollector of a nil wheel")
	}
	describe := func(metric, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("timingwheel_"+metric, help, labels, prometheus.Labels{"wheel": name})
	}
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

// histogram turns the counts of buckets into those of all that is below a bound. The last
// bucket has no bound: it is in the total alone.
func histogram(desc *prometheus.Desc, h *timingwheel.Histogram) prometheus.Metric {
	below := uint64(0)
	buckets := make(map[float64]uint64, timingwheel.HistogramBuckets-1)
	for i, n := range h.Counts[:timingwheel.HistogramBuckets-1] {
		below += uint64(n)
		buckets[h.UpperBound(i).Seconds()] = below
	}
	return prometheus.MustNewConstHistogram(desc, uint64(h.Total()), h.Sum.Seconds(), buckets)
}
