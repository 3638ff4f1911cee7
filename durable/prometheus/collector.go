// Package prometheus shows a queue of durable jobs to Prometheus: what went through this
// process, what it holds, and how late its handlers begin.
//
//	import jobmetrics "github.com/tickwheel/tickwheel/durable/prometheus"
//
//	registry.MustRegister(jobmetrics.NewCollector(q, "mails"))
//
// The package has the name of its folder, and so that of the package of client_golang
// that is imported next to it; this one is used in one line, so rename this one. It is a
// module of its own, and registers nothing by itself.
//
// Every metric has the label queue, with the name that was given to [NewCollector]. They
// are the fields of durable.Stats, whose documentation says what exactly they count:
//
//	durable_added_total          counter
//	durable_canceled_total       counter
//	durable_rescheduled_total    counter
//	durable_redriven_total       counter
//	durable_deleted_total        counter
//	durable_attempts_total       counter
//	durable_done_total           counter
//	durable_failed_total         counter
//	durable_dead_total           counter
//	durable_snoozed_total        counter
//	durable_expired_total        counter
//	durable_stopped_total        counter
//	durable_lease_lost_total     counter
//	durable_forgotten_total      counter
//	durable_clock_steps_total    counter
//	durable_held                 gauge
//	durable_claimed              gauge
//	durable_running              gauge
//	durable_ending               gauge
//	durable_stuck                gauge: handlers that have not returned although their Timeout ended at least a lease ago
//	durable_claim_ahead_seconds  gauge
//	durable_limited              gauge
//	durable_paused               gauge: how many pauses are in force, also those with an end
//	durable_paused_queue         gauge: 1 if the whole queue is paused, else 0
//	durable_limit_waiting        gauge, with the label limit: jobs that are due; "" is a pause
//	durable_limit_next_seconds   gauge, with the label limit: until the next token, if one waits for it
//	durable_unhandled            gauge: kinds
//	durable_unhandled_seconds    gauge, with the label kind: how long its oldest job is due
//	durable_lateness_seconds     histogram
//
// These exist while Run is under way; those of the backlog after its first poll:
//
//	durable_pending              gauge: about the number of all waiting jobs
//	durable_overdue              gauge, with the label kind: jobs that are due and wait
//	durable_overdue_seconds      gauge, with the label kind: how long the oldest of them is due
//	durable_backlog_age_seconds  gauge: since these three were read
//	durable_feed_age_seconds     gauge: since the last successful poll
//	durable_claim_age_seconds    gauge: since the last claim that was answered, or Run began
//	durable_beat_age_seconds     gauge: since the lease was renewed
//
// Each process of a queue shows the same backlog: take its maximum. Lateness counts
// attempts that have begun; the ages show a store that is stuck.
//
// The file rules.yml beside this one has alerts on them, and dashboard.json is a dashboard
// for Grafana. The bounds of its buckets are 1us times powers of two.
package prometheus

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/timingwheel"
)

// collector has what describes its metrics, and keeps no figures: those are the Queue's.
type collector struct {
	queue    *durable.Queue
	figures  []figure
	lateness *prometheus.Desc
	overdue  *prometheus.Desc // with the label kind, like the next two
	waiting  *prometheus.Desc
	waitTime *prometheus.Desc
	pending  *prometheus.Desc
	ages     []age
	limited  *prometheus.Desc // with the label limit, and so has next
	next     *prometheus.Desc
}

// figure is one number out of the Stats.
type figure struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(s *durable.Stats) float64
}

// age is for how long something has not been.
type age struct {
	desc *prometheus.Desc
	last func(s *durable.Stats) time.Time
}

// NewCollector returns a Collector of the Queue's figures, for a prometheus.Registerer.
// Name is the value of their label queue; register one Collector for each Queue, under
// different names. Each scrape calls Stats once. The Queue may be closed before or after:
// its counters then stand. NewCollector panics on a nil Queue.
func NewCollector(q *durable.Queue, name string) prometheus.Collector {
	if q == nil {
		panic("prometheus: NewCollector: nil Queue")
	}
	desc := func(metric, help string) *prometheus.Desc {
		return prometheus.NewDesc("durable_"+metric, help, nil, prometheus.Labels{"queue": name})
	}
	c := &collector{queue: q, lateness: desc("lateness_seconds", "By how much handlers have begun after their time.")}
	counter := func(metric, help string, value func(s *durable.Stats) int64) {
		c.figures = append(c.figures, figure{desc(metric, help), prometheus.CounterValue, func(s *durable.Stats) float64 { return float64(value(s)) }})
	}
	gauge := func(metric, help string, value func(s *durable.Stats) float64) {
		c.figures = append(c.figures, figure{desc(metric, help), prometheus.GaugeValue, value})
	}
	counter("added_total", "Jobs that were accepted here.", func(s *durable.Stats) int64 { return s.Added })
	counter("canceled_total", "Jobs that were canceled here.", func(s *durable.Stats) int64 { return s.Canceled })
	counter("rescheduled_total", "Jobs that were given another time here.", func(s *durable.Stats) int64 { return s.Rescheduled })
	counter("redriven_total", "Dead jobs that were redriven here.", func(s *durable.Stats) int64 { return s.Redriven })
	counter("deleted_total", "Jobs that had ended and were deleted here.", func(s *durable.Stats) int64 { return s.Deleted })
	counter("attempts_total", "Handlers that have begun.", func(s *durable.Stats) int64 { return s.Attempts })
	counter("done_total", "Attempts that ended well.", func(s *durable.Stats) int64 { return s.Done })
	counter("failed_total", "Attempts that failed and are followed by another.", func(s *durable.Stats) int64 { return s.Failed })
	counter("dead_total", "Jobs that died here.", func(s *durable.Stats) int64 { return s.Dead })
	counter("snoozed_total", "Attempts that ended by a snooze or a cooldown. They do not count.", func(s *durable.Stats) int64 { return s.Snoozed })
	counter("expired_total", "Jobs that expired before an attempt could begin.", func(s *durable.Stats) int64 { return s.Expired })
	counter("stopped_total", "Jobs that CancelRunning ended here.", func(s *durable.Stats) int64 { return s.Stopped })
	counter("lease_lost_total", "Attempts that another worker has taken over.", func(s *durable.Stats) int64 { return s.LeaseLost })
	counter("forgotten_total", "Claims of this worker that only the store had, since it went back.", func(s *durable.Stats) int64 { return s.Forgotten })
	counter("clock_steps_total", "Times that the engine's clock was found to have been set.", func(s *durable.Stats) int64 { return s.ClockSteps })
	gauge("held", "Jobs that the engine has handed out to this worker.", func(s *durable.Stats) float64 { return float64(s.Held) })
	gauge("claimed", "Jobs that are claimed and have not begun.", func(s *durable.Stats) float64 { return float64(s.Claimed) })
	gauge("running", "Handlers that run.", func(s *durable.Stats) float64 { return float64(s.Running) })
	gauge("ending", "Attempts whose end is being stored.", func(s *durable.Stats) float64 { return float64(s.Ending) })
	gauge("stuck", "Handlers that have not returned a lease after their Timeout.", func(s *durable.Stats) float64 { return float64(s.Stuck) })
	c.limited = prometheus.NewDesc("durable_limit_waiting", "Jobs that are due and wait here for a limit, or for a pause to end.",
		[]string{"limit"}, prometheus.Labels{"queue": name})
	c.next = prometheus.NewDesc("durable_limit_next_seconds", "How long the next of them waits for a token.",
		[]string{"limit"}, prometheus.Labels{"queue": name})
	gauge("limited", "Jobs that are due and wait here for limits and pauses.", func(s *durable.Stats) float64 { return float64(s.Limited) })
	gauge("paused", "Pauses that have not ended.", func(s *durable.Stats) float64 { return float64(len(s.Paused)) })
	gauge("paused_queue", "Whether the whole queue is paused.", func(s *durable.Stats) float64 {
		if slices.ContainsFunc(s.Paused, func(p durable.Pause) bool { return p.Pausable == durable.Pausable{} }) {
			return 1
		}
		return 0
	})
	c.overdue = prometheus.NewDesc("durable_unhandled_seconds", "How long the oldest job is due of a kind without a handler in any worker.",
		[]string{"kind"}, prometheus.Labels{"queue": name})
	gauge("unhandled", "Kinds with a due job and without a handler in any worker.", func(s *durable.Stats) float64 { return float64(len(s.Unhandled)) })
	gauge("claim_ahead_seconds", "How long before their due time jobs are claimed.", func(s *durable.Stats) float64 { return s.ClaimAhead.Seconds() })
	c.describeBacklog(name, desc)
	return c
}

func (c *collector) describeBacklog(name string, desc func(metric, help string) *prometheus.Desc) {
	byKind := func(metric, help string) *prometheus.Desc {
		return prometheus.NewDesc("durable_"+metric, help, []string{"kind"}, prometheus.Labels{"queue": name})
	}
	c.pending = desc("pending", "About the number of all waiting jobs.")
	c.waiting = byKind("overdue", "Jobs that are due and wait.")
	c.waitTime = byKind("overdue_seconds", "How long the oldest waiting job is due.")
	add := func(metric, help string, last func(s *durable.Stats) time.Time) {
		c.ages = append(c.ages, age{desc(metric, help), last})
	}
	add("backlog_age_seconds", "Since the backlog was read.", func(s *durable.Stats) time.Time { return s.BacklogAt })
	add("feed_age_seconds", "Since the last successful poll.", func(s *durable.Stats) time.Time { return s.LastPoll })
	add("claim_age_seconds", "Since the last claim that was answered.", func(s *durable.Stats) time.Time { return s.LastClaim })
	add("beat_age_seconds", "Since the lease was renewed.", func(s *durable.Stats) time.Time { return s.LastHeartbeat })
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range c.figures {
		ch <- f.desc
	}
	ch <- c.lateness
	for _, d := range []*prometheus.Desc{c.overdue, c.pending, c.waiting, c.waitTime, c.limited, c.next} {
		ch <- d
	}
	for _, a := range c.ages {
		ch <- a.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	st := c.queue.Stats()
	for _, f := range c.figures {
		ch <- prometheus.MustNewConstMetric(f.desc, f.kind, f.value(&st))
	}
	for _, u := range st.Unhandled {
		ch <- prometheus.MustNewConstMetric(c.overdue, prometheus.GaugeValue, max(0, st.Now.Sub(u.Due).Seconds()), u.Kind)
	}
	c.collectBacklog(ch, &st)
	for _, l := range st.Limits {
		ch <- prometheus.MustNewConstMetric(c.limited, prometheus.GaugeValue, float64(l.Waiting), l.Name)
		if !l.Next.IsZero() {
			ch <- prometheus.MustNewConstMetric(c.next, prometheus.GaugeValue, max(0, l.Next.Sub(st.Now).Seconds()), l.Name)
		}
	}
	below, buckets := uint64(0), make(map[float64]uint64, timingwheel.HistogramBuckets-1)
	for i, n := range st.Lateness.Counts[:timingwheel.HistogramBuckets-1] {
		below += uint64(n)
		buckets[st.Lateness.UpperBound(i).Seconds()] = below
	}
	ch <- prometheus.MustNewConstHistogram(c.lateness, uint64(st.Lateness.Total()), st.Lateness.Sum.Seconds(), buckets)
}

// collectBacklog leaves out what nobody knows.
func (c *collector) collectBacklog(ch chan<- prometheus.Metric, st *durable.Stats) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	for _, a := range c.ages {
		if last := a.last(st); !last.IsZero() {
			gauge(a.desc, max(0, time.Since(last).Seconds()))
		}
	}
	if st.BacklogAt.IsZero() {
		return
	}
	gauge(c.pending, float64(st.Backlog.Waiting))
	for _, o := range st.Backlog.Kinds {
		gauge(c.waiting, float64(o.Jobs), o.Kind)
		gauge(c.waitTime, max(0, st.Now.Sub(o.Due).Seconds()), o.Kind)
	}
}
