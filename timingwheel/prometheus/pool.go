package prometheus

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

// poolCollector is to a pool what collector is to a wheel.
type poolCollector struct {
	pool    *pool.Pool
	figures []metric[pool.Stats]
}

// NewPoolCollector returns a Collector of the pool's figures, for a
// prometheus.Registerer. Name is the value of their label pool. It may be the name of a
// wheel too. If two pools of a registry have the same name, the registry refuses the
// second.
//
// Each scrape calls the pool's Stats once. The figures are read one after the other, so
// while tasks come and go they may not belong together. The pool may be closed before or
// after. Collect is safe for concurrent use. The pool is not garbage as long as the
// Collector is registered. NewPoolCollector panics on a nil pool.
func NewPoolCollector(p *pool.Pool, name string) prometheus.Collector {
	if p == nil {
		panic("prometheus: NewPoolCollector: nil pool")
	}
	return &poolCollector{pool: p, figures: pools(describer("pool", name))}
}

// Describe implements prometheus.Collector.
func (c *poolCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.figures {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *poolCollector) Collect(ch chan<- prometheus.Metric) {
	st := c.pool.Stats()
	for _, m := range c.figures {
		ch <- m.of(&st)
	}
}
