package prometheus_test

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tickwheel/tickwheel/purgatory"
	"github.com/tickwheel/tickwheel/timingwheel"
	wheelmetrics "github.com/tickwheel/tickwheel/timingwheel/prometheus"

	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

func ExampleNewCollector() {
	sessions := timingwheel.New()
	defer sessions.Stop()
	registry := prometheus.NewRegistry()
	registry.MustRegister(wheelmetrics.NewCollector(sessions, "sessions"))
	// http.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))

	sessions.AfterFunc(time.Hour, func() { fmt.Println("expired") })
	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
	}
	for _, family := range families {
		if family.GetName() == "timingwheel_pending" {
			m := family.GetMetric()[0]
			fmt.Println(m.GetLabel()[0].GetValue(), m.GetGauge().GetValue())
		}
	}
	// Output: sessions 1
}

func ExampleNewPoolCollector() {
	p := pool.New(16, 1000, pool.Wait)
	defer p.Close()
	registry := prometheus.NewRegistry()
	registry.MustRegister(wheelmetrics.NewPoolCollector(p, "workers"))

	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
	}
	for _, family := range families {
		fmt.Println(family.GetName(), family.GetMetric()[0].GetGauge().GetValue())
	}
	// Output:
	// timingwheel_pool_closed 0
	// timingwheel_pool_queue_capacity 1000
	// timingwheel_pool_queued 0
	// timingwheel_pool_running 0
	// timingwheel_pool_waiting 0
	// timingwheel_pool_workers 16
}

func ExampleNewPurgatoryCollector() {
	w := timingwheel.New()
	defer w.Stop()
	polls := purgatory.New[string](w)
	registry := prometheus.NewRegistry()
	registry.MustRegister(wheelmetrics.NewPurgatoryCollector(polls, "polls"))

	polls.Park(time.Hour, nil, nil, "news", "sports")
	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
	}
	for _, family := range families {
		if m := family.GetMetric()[0]; m.Gauge != nil {
			fmt.Println(family.GetName(), m.GetGauge().GetValue())
		}
	}
	// Output:
	// purgatory_keys 2
	// purgatory_pending 1
	// purgatory_watched 2
}
