package prometheus_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/enginetest"
	"github.com/tickwheel/tickwheel/durable/memory"
	jobmetrics "github.com/tickwheel/tickwheel/durable/prometheus"
	"github.com/tickwheel/tickwheel/timingwheel"
)

// used returns a queue in which something has happened of each kind that a healthy engine
// knows, with one job that runs, and what ends that.
func used(t *testing.T) (q *durable.Queue, end func()) {
	q, err := durable.Open(t.Context(), enginetest.NewMemory().Open(t), durable.WithBackoff(func(int) time.Duration { return time.Hour }))
	require.NoError(t, err)
	t.Cleanup(func() { q.Close() })
	begun, release := make(chan bool), make(chan bool)
	q.Handle("good", func(context.Context, *durable.Attempt) error { return nil })
	q.Handle("bad", func(context.Context, *durable.Attempt) error { return errors.New("again") })
	q.Handle("worse", func(context.Context, *durable.Attempt) error { return durable.Discard(errors.New("no")) })
	q.Handle("long", func(ctx context.Context, _ *durable.Attempt) error {
		close(begun)
		select {
		case <-release:
		case <-ctx.Done(): // the test has failed, and the Queue is closed
		}
		return nil
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- q.Run(ctx) }()
	far := durable.Job{Kind: "good", After: time.Hour}
	refs, err := q.AddMany(ctx, durable.Job{Kind: "worse"}, durable.Job{Kind: "good"}, durable.Job{Kind: "good"}, durable.Job{Kind: "good"},
		durable.Job{Kind: "bad"}, durable.Job{Kind: "bad"}, durable.Job{Kind: "long"}, far, far)
	require.NoError(t, err)
	ok, err := q.Cancel(ctx, refs[7])
	require.NoError(t, err)
	require.True(t, ok)
	for range 4 {
		ok, err = q.Reschedule(ctx, refs[8], time.Now().Add(2*time.Hour))
		require.NoError(t, err)
		require.True(t, ok)
	}
	<-begun
	is := func(dead int64) func() bool {
		return func() bool { s := q.Stats(); return s.Done == 3 && s.Failed == 2 && s.Dead == dead && s.Held == 1 }
	}
	require.Eventually(t, is(1), 2*time.Minute, time.Millisecond)
	require.NoError(t, q.Redrive(ctx, refs[0]))
	require.Eventually(t, is(2), 2*time.Minute, time.Millisecond)
	require.NoError(t, q.Delete(ctx, refs[0]))
	return q, func() {
		close(release)
		stop()
		require.NoError(t, <-done)
	}
}

// scrape gets what Prometheus would, over HTTP, and reads it.
func scrape(t *testing.T, g prometheus.Gatherer) map[string]*dto.MetricFamily {
	t.Helper()
	server := httptest.NewServer(promhttp.HandlerFor(g, promhttp.HandlerOpts{}))
	defer server.Close()
	response, err := http.Get(server.URL)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	require.NoError(t, err)
	return families
}

// metric returns the name of a field of the Stats, as Prometheus has it.
func metric(field string) string {
	words := regexp.MustCompile("[A-Z][a-z]+").FindAllString(field, -1)
	return "durable_" + strings.ToLower(strings.Join(words, "_"))
}

// requireStats compares what is scraped with the Stats, field by field.
func requireStats(t *testing.T, families map[string]*dto.MetricFamily, st durable.Stats) {
	t.Helper()
	v := reflect.ValueOf(st)
	for i := range v.NumField() {
		switch name := v.Type().Field(i).Name; name {
		case "LastPoll", "LastClaim", "LastHeartbeat", "Backlog", "BacklogAt", "Limits", "Paused": // see TestStuck, TestLimits and TestPaused
			continue
		}
		name := metric(v.Type().Field(i).Name)
		for _, suffix := range []string{"", "_total", "_seconds"} {
			family := families[name+suffix]
			if family == nil {
				continue
			}
			require.Len(t, family.Metric, 1)
			m := family.Metric[0]
			require.Equal(t, "queue", m.Label[0].GetName())
			require.Equal(t, "mails", m.Label[0].GetValue())
			require.Equal(t, suffix == "_total", family.GetType() == dto.MetricType_COUNTER, name)
			switch value := v.Field(i).Interface().(type) {
			case timingwheel.Histogram:
				require.EqualValues(t, value.Total(), m.Histogram.GetSampleCount())
				require.InDelta(t, value.Sum.Seconds(), m.Histogram.GetSampleSum(), 1e-9)
			case time.Duration:
				require.Equal(t, value.Seconds(), m.Gauge.GetValue(), name)
			case int64:
				require.EqualValues(t, value, m.GetGauge().GetValue()+m.GetCounter().GetValue(), name)
			}
			delete(families, name+suffix)
		}
	}
	for name := range families {
		require.Contains(t, []string{"durable_pending", "durable_overdue", "durable_overdue_seconds", "durable_backlog_age_seconds",
			"durable_feed_age_seconds", "durable_claim_age_seconds", "durable_beat_age_seconds", "durable_paused", "durable_paused_queue"}, name)
	}
}

func TestScrapeIsStats(t *testing.T) {
	q, end := used(t)
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(jobmetrics.NewCollector(q, "mails")))
	st := q.Stats()
	requireStats(t, scrape(t, registry), st)
	require.Equal(t, []int64{9, 1, 4, 1, 1, 8, 3, 2, 2, 0, 1, 0, 1, 0}, []int64{st.Added, st.Canceled, st.Rescheduled, st.Redriven, st.Deleted,
		st.Attempts, st.Done, st.Failed, st.Dead, st.LeaseLost, st.Held, st.Claimed, st.Running, st.Ending})
	require.Positive(t, st.ClaimAhead)
	end()
	require.NoError(t, q.Close())
	requireStats(t, scrape(t, registry), q.Stats())
}

// The buckets are cumulative, and as many as the Histogram has with a bound.
func TestLateness(t *testing.T) {
	q, end := used(t)
	end()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(jobmetrics.NewCollector(q, "mails")))
	st := q.Stats()
	below, n := int64(0), 0
	for i, b := range scrape(t, registry)["durable_lateness_seconds"].Metric[0].Histogram.Bucket[:timingwheel.HistogramBuckets-1] {
		below += st.Lateness.Counts[i]
		require.EqualValues(t, below, b.GetCumulativeCount())
		require.Equal(t, st.Lateness.UpperBound(i).Seconds(), b.GetUpperBound())
		n++
	}
	require.Equal(t, timingwheel.HistogramBuckets-1, n)
	require.Equal(t, st.Lateness.Total(), below)
}

func TestLint(t *testing.T) {
	q, end := used(t)
	defer end()
	problems, err := testutil.CollectAndLint(jobmetrics.NewCollector(q, "mails"))
	require.NoError(t, err)
	require.Empty(t, problems)
}

func TestSeveralQueues(t *testing.T) {
	q, end := used(t)
	defer end()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(jobmetrics.NewCollector(q, "a")))
	require.NoError(t, registry.Register(jobmetrics.NewCollector(q, "b")))
	require.Len(t, scrape(t, registry)["durable_added_total"].Metric, 2)
	require.ErrorAs(t, registry.Register(jobmetrics.NewCollector(q, "a")), new(prometheus.AlreadyRegisteredError))
	require.PanicsWithValue(t, "prometheus: NewCollector: nil Queue", func() { jobmetrics.NewCollector(nil, "x") })
}

// A kind that nobody handles is named.
func TestUnhandled(t *testing.T) {
	q, err := durable.Open(t.Context(), enginetest.NewMemory().Open(t), durable.WithLease(100*time.Millisecond))
	require.NoError(t, err)
	defer q.Close()
	q.Handle("handled", func(context.Context, *durable.Attempt) error { return nil })
	_, err = q.Add(t.Context(), durable.Job{Kind: "nobody's"})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	require.Eventually(t, func() bool { return len(q.Stats().Unhandled) == 1 }, 2*time.Minute, time.Millisecond)
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(jobmetrics.NewCollector(q, "mails")))
	families := scrape(t, registry)
	require.EqualValues(t, 1, families["durable_unhandled"].Metric[0].Gauge.GetValue())
	m := families["durable_unhandled_seconds"].Metric[0]
	require.Equal(t, []string{"kind", "nobody's"}, []string{m.Label[0].GetName(), m.Label[0].GetValue()})
	require.Positive(t, m.Gauge.GetValue())
	stop()
	require.NoError(t, <-done)
}

// Ages of jobs, and the times of tokens, are by the engine's clock: that of this machine may be set to anything.
func TestClock(t *testing.T) {
	for _, off := range []time.Duration{-1000 * time.Hour, 1000 * time.Hour} {
		clock := memory.NewClock(time.Now().Add(off))
		q, err := durable.Open(t.Context(), memory.New(clock).Open(), durable.WithLease(100*time.Millisecond))
		require.NoError(t, err)
		q.Handle("mail", func(context.Context, *durable.Attempt) error { return nil })
		require.NoError(t, q.SetLimit(t.Context(), "hourly", durable.Limit{Kind: "mail", Rate: 1.0 / 3600, Burst: 1}))
		_, err = q.AddMany(t.Context(), durable.Job{Kind: "nobody's"}, durable.Job{Kind: "mail"}, durable.Job{Kind: "mail"})
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() { done <- q.Run(t.Context()) }()
		require.Eventually(t, func() bool {
			st := q.Stats()
			return len(st.Unhandled) == 1 && len(st.Backlog.Kinds) > 0 && len(st.Limits) == 1 && !st.Limits[0].Next.IsZero()
		}, 2*time.Minute, time.Millisecond)
		registry := prometheus.NewPedanticRegistry()
		require.NoError(t, registry.Register(jobmetrics.NewCollector(q, "mails")))
		clock.Set(clock.Now().Add(time.Minute))
		families := scrape(t, registry)
		for name, seconds := range map[string]float64{"unhandled": 60, "overdue": 60, "limit_next": 3540} {
			require.InDelta(t, seconds, families["durable_"+name+"_seconds"].Metric[0].Gauge.GetValue(), 1, name)
		}
		require.NoError(t, q.Close())
		require.NoError(t, <-done)
	}
}

// A pause is told from a queue that is stuck, and is no reason to take a process out of
// service.
func TestPaused(t *testing.T) {
	q, err := durable.Open(t.Context(), enginetest.NewMemory().Open(t))
	require.NoError(t, err)
	defer q.Close()
	q.Handle("mail", func(context.Context, *durable.Attempt) error { return nil })
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(jobmetrics.NewCollector(q, "mails")))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	_, err = q.Add(t.Context(), durable.Job{Kind: "mail", After: time.Hour})
	require.NoError(t, err)
	expect := func(pauses, queue float64) {
		t.Helper()
		require.Eventually(t, func() bool { return float64(len(q.Stats().Paused)) == pauses }, 2*time.Minute, time.Millisecond)
		families := scrape(t, registry)
		require.Equal(t, pauses, families["durable_paused"].Metric[0].Gauge.GetValue())
		require.Equal(t, queue, families["durable_paused_queue"].Metric[0].Gauge.GetValue())
		require.NoError(t, q.Health(t.Context()))
	}
	expect(0, 0)
	require.NoError(t, q.Pause(t.Context(), durable.Pausable{Kind: "mail"}))
	expect(1, 0)
	require.NoError(t, q.Pause(t.Context(), durable.Pausable{}))
	expect(2, 1)
	require.NoError(t, q.Resume(t.Context(), durable.Pausable{}))
	expect(1, 0)
	require.NoError(t, q.PauseFor(t.Context(), durable.Pausable{Lane: "x"}, time.Hour))
	expect(2, 0)
	require.NoError(t, q.Resume(t.Context(), durable.Pausable{Lane: "x"}))
	require.NoError(t, q.PauseFor(t.Context(), durable.Pausable{}, time.Millisecond))
	expect(1, 0) // it has ended, though it is still stored
	stop()
	require.NoError(t, <-done)
}

// What waits for a limit is named, and when the next one goes.
func TestLimits(t *testing.T) {
	q, err := durable.Open(t.Context(), enginetest.NewMemory().Open(t))
	require.NoError(t, err)
	defer q.Close()
	q.Handle("mail", func(context.Context, *durable.Attempt) error { return nil })
	require.NoError(t, q.SetLimit(t.Context(), "hourly", durable.Limit{Kind: "mail", Rate: 1.0 / 3600, Burst: 1}))
	for range 3 {
		_, err = q.Add(t.Context(), durable.Job{Kind: "mail"})
		require.NoError(t, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	require.Eventually(t, func() bool {
		st := q.Stats()
		return st.Limited == 2 && !st.Limits[0].Next.IsZero()
	}, 2*time.Minute, time.Millisecond)
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(jobmetrics.NewCollector(q, "mails")))
	families := scrape(t, registry)
	m := families["durable_limit_waiting"].Metric[0]
	require.Equal(t, []string{"limit", "hourly"}, []string{m.Label[0].GetName(), m.Label[0].GetValue()})
	require.EqualValues(t, 2, m.Gauge.GetValue())
	require.InDelta(t, 3600, families["durable_limit_next_seconds"].Metric[0].Gauge.GetValue(), 300)
	stop()
	require.NoError(t, <-done)
}
