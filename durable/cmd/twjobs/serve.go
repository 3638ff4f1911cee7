package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/admin"
)

// serve serves the page of package admin, its answers, and the metrics, until ctx ends.
func (t *target) serve(ctx context.Context, o *output, args []string) error {
	f := newFlags("serve", o.err)
	listen := f.String("listen", "localhost:8470", "the address to serve on")
	writes := f.Bool("write", false, "allow changes")
	var hosts []string
	f.Func("host", "a name by which browsers may call it", func(s string) error { hosts = append(hosts, s); return nil })
	switch err := parse(f, args); {
	case err != nil:
		return err
	case f.NArg() > 0:
		return wrong("serve: unexpected argument %q", f.Arg(0))
	case t.url != "":
		return wrong("serve: not with -url, where a handler serves already")
	}
	q, closeAll, err := t.open(ctx)
	if err != nil {
		return err
	}
	defer closeAll()
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", *listen)
	if err != nil {
		return err
	}
	if l.Addr().(*net.TCPAddr).IP.IsLoopback() && len(hosts) == 0 {
		hosts = []string{"localhost", "127.0.0.1", "::1"} // or pages of other sites could call it: see admin.WithHosts
	}
	mode := "reads only; -write allows changes"
	if *writes {
		mode = "allows changes"
	}
	fmt.Fprintf(o.out, "serves http://%s/ and http://%[1]s/metrics: %s\n", l.Addr(), mode)
	s := &http.Server{Handler: t.handler(q, *writes, hosts, o), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	ended := make(chan bool)
	stopped := context.AfterFunc(ctx, func() {
		defer close(ended)
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if s.Shutdown(bounded) != nil {
			s.Close()
		}
	})
	defer stopped()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-ended // Serve returns when Shutdown begins
	return nil
}

// handler returns the handler of what serve serves.
func (t *target) handler(q *durable.Queue, writes bool, hosts []string, o *output) http.Handler {
	opts := []admin.Option{admin.WithLogger(slog.New(slog.NewTextHandler(o.err, nil)))}
	if writes {
		opts = append(opts, admin.WithWrites())
	}
	if len(hosts) > 0 {
		opts = append(opts, admin.WithHosts(hosts...))
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(newWaiting(q, cmp.Or(t.queue, "durable")))
	mux := http.NewServeMux()
	mux.Handle("/", admin.NewHandler(q, opts...))
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}

// waiting has the metrics of what waits in the store, under the names that package durable/prometheus has for
// them. The others of that package are of a process that runs jobs.
type waiting struct {
	queue                  *durable.Queue
	pending, overdue, late *prometheus.Desc
}

func newWaiting(q *durable.Queue, name string) *waiting {
	desc := func(metric, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("durable_"+metric, help, labels, prometheus.Labels{"queue": name})
	}
	return &waiting{
		q, desc("pending", "Jobs that wait in all, about."), desc("overdue", "Jobs that are due and wait.", "kind"),
		desc("overdue_seconds", "For how long the oldest job is due that waits.", "kind"),
	}
}

// Describe implements prometheus.Collector.
func (c *waiting) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.pending
	ch <- c.overdue
	ch <- c.late
}

// Collect implements prometheus.Collector. Each scrape reads the store.
func (c *waiting) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // as long as Prometheus waits, by default
	defer cancel()
	b, err := c.queue.Backlog(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(c.pending, err)
		return
	}
	ch <- prometheus.MustNewConstMetric(c.pending, prometheus.GaugeValue, float64(b.Waiting))
	now := c.queue.Stats().Now
	for _, o := range b.Kinds {
		ch <- prometheus.MustNewConstMetric(c.overdue, prometheus.GaugeValue, float64(o.Jobs), o.Kind)
		ch <- prometheus.MustNewConstMetric(c.late, prometheus.GaugeValue, max(0, now.Sub(o.Due).Seconds()), o.Kind)
	}
}
