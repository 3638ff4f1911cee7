package prometheus

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickwheel/tickwheel/purgatory"
)

// Purgatory is a purgatory.Purgatory of any kind of key, or a purgatory.Threshold.
type Purgatory interface {
	Stats() purgatory.Stats
}

// purgatoryCollector has what describes its metrics, and keeps no figures: those are the
// purgatory's.
type purgatoryCollector struct {
	purgatory Purgatory
	figures   []metric[purgatory.Stats]
}

// NewPurgatoryCollector returns a Collector of a purgatory's figures, for a
// prometheus.Registerer:
//
//	registry.MustRegister(wheelmetrics.NewPurgatoryCollector(p, "polls"))
//
// P may be a purgatory.Threshold too, which has no keys and no questions. Name is the
// value of their label purgatory. They are the fields of purgatory.Stats,
// whose documentation says what exactly they count:
//
//	purgatory_parked_total     counter; when nothing is under way, the sum of satisfied,
//	                           expired, canceled, closed and pending
//	purgatory_satisfied_total  counter
//	purgatory_expired_total    counter
//	purgatory_canceled_total   counter
//	purgatory_closed_total     counter
//	purgatory_immediate_total  counter, a part of satisfied
//	purgatory_checks_total     counter, of questions
//	purgatory_pending          gauge
//	purgatory_watched          gauge, places under keys
//	purgatory_keys             gauge
//
// The share of those that give up is
//
//	rate(purgatory_expired_total[5m]) / rate(purgatory_parked_total[5m])
//
// Each scrape calls Stats once, which costs some microseconds. The purgatory may be
// closed before or after. Collect is safe for concurrent use. As long as the Collector is
// registered the purgatory is not garbage. NewPurgatoryCollector panics on a nil
// interface.
func NewPurgatoryCollector(p Purgatory, name string) prometheus.Collector {
	if p == nil {
		panic("prometheus: NewPurgatoryCollector: nil purgatory")
	}
	describe := func(metric, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("purgatory_"+metric, help, labels, prometheus.Labels{"purgatory": name})
	}
	return &purgatoryCollector{p, purgatoryFigures(describe)}
}

func purgatoryFigures(describe describe) []metric[purgatory.Stats] {
	type stats = purgatory.Stats
	return []metric[stats]{
		{describe("parked_total", "Operations that were accepted."), counter, func(s *stats) float64 { return float64(s.Parked) }},
		{describe("satisfied_total", "Operations whose condition held."), counter, func(s *stats) float64 { return float64(s.Satisfied) }},
		{describe("expired_total", "Operations whose deadline came first."), counter, func(s *stats) float64 { return float64(s.Expired) }},
		{describe("canceled_total", "Operations that were canceled."), counter, func(s *stats) float64 { return float64(s.Canceled) }},
		{describe("closed_total", "Operations that ended with the purgatory or its wheel."), counter, func(s *stats) float64 { return float64(s.Closed) }},
		{describe("immediate_total", "Operations whose condition held at once, a part of satisfied."), counter, func(s *stats) float64 { return float64(s.Immediate) }},
		{describe("checks_total", "Questions whether a condition holds."), counter, func(s *stats) float64 { return float64(s.Checks) }},
		{describe("pending", "Operations that are parked."), gauge, func(s *stats) float64 { return float64(s.Pending) }},
		{describe("watched", "Places of parked operations under keys."), gauge, func(s *stats) float64 { return float64(s.Watched) }},
		{describe("keys", "Keys that an operation is parked under."), gauge, func(s *stats) float64 { return float64(s.Keys) }},
	}
}

// Describe implements prometheus.Collector.
func (c *purgatoryCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.figures {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *purgatoryCollector) Collect(ch chan<- prometheus.Metric) {
	st := c.purgatory.Stats()
	for _, m := range c.figures {
		ch <- m.of(&st)
	}
}
