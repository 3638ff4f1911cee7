package prometheus_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/memory"
	jobmetrics "github.com/tickwheel/tickwheel/durable/prometheus"
)

// One line registers the metrics of a queue. A program mounts promhttp.Handler at /metrics.
func ExampleNewCollector() {
	ctx := context.Background()
	q, err := durable.Open(ctx, memory.New(memory.NewClock(time.Now())).Open())
	if err != nil {
		panic(err)
	}
	defer q.Close()
	registry := prometheus.NewRegistry()
	registry.MustRegister(jobmetrics.NewCollector(q, "reminders"))
	if _, err := q.Add(ctx, durable.Job{Kind: "remind", After: time.Hour}); err != nil {
		panic(err)
	}

	scrape := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(scrape, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(scrape.Body.String()) {
		if strings.HasPrefix(line, "durable_added_total") {
			fmt.Print(line)
		}
	}
	// Output: durable_added_total{queue="reminders"} 1
}
