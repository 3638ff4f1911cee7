package prometheus

import (
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

func noop() {}

func registered(t *testing.T, collectors ...prometheus.Collector) *prometheus.Registry {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	for _, c := range collectors {
		require.NoError(t, registry.Register(c))
	}
	return registry
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

// value returns the value of the metric with these labels, which come in pairs.
func value(t *testing.T, families map[string]*dto.MetricFamily, name string, labels ...string) float64 {
	t.Helper()
	m := find(families["timingwheel_"+name], labels...)
	require.NotNil(t, m, "no %s of %v", name, labels)
	if families["timingwheel_"+name].GetType() == dto.MetricType_COUNTER {
		return m.Counter.GetValue()
	}
	return m.Gauge.GetValue()
}

func find(family *dto.MetricFamily, labels ...string) *dto.Metric {
	for _, m := range family.GetMetric() {
		has := map[string]string{}
		for _, l := range m.Label {
			has[l.GetName()] = l.GetValue()
		}
		same := len(has) == len(labels)/2
		for i := 0; i < len(labels); i += 2 {
			same = same && has[labels[i]] == labels[i+1]
		}
		if same {
			return m
		}
	}
	return nil
}

// newUsedWheel returns a wheel with something in every account that can be had without a
// pool, and that nothing moves any more.
func newUsedWheel() *timingwheel.TimingWheel {
	w := timingwheel.New(timingwheel.WithManualDrive(), timingwheel.WithExecutor(timingwheel.Inline()),
		timingwheel.WithWheelSize(8), timingwheel.WithShards(1), timingwheel.WithMaxPending(5),
		timingwheel.WithPanicHandler(func(any, []byte) {}))
	w.AfterFunc(9*time.Millisecond, func() { panic("oops") })
	w.AfterFunc(10*time.Millisecond, noop)
	w.AfterFunc(time.Hour, noop).Reset(2 * time.Hour)
	w.AfterFunc(time.Minute, noop).Stop()
	for range 7 {
		w.Schedule(time.Second, noop)
	}
	for w.Stats().Expired < 2 {
		w.Drive(time.Second)
	}
	return w
}

func TestScrapeIsStats(t *testing.T) {
	w := newUsedWheel()
	defer w.Stop()
	registry := registered(t, NewCollector(w, "used"))
	before := w.Stats()
	families := scrape(t, registry)
	after := w.Stats()

	st := before
	for name, n := range map[string]int64{"pending": st.Pending, "scheduled_total": st.Scheduled, "expired_total": st.Expired,
		"stopped_total": st.Stopped, "resets_total": st.Reset, "cascades_total": st.Cascaded, "rejections_total": st.Rejected,
		"panics_total": st.Panicked, "arena_entries": st.Arena.Capacity, "arena_free_entries": st.Arena.Free} {
		require.Positive(t, n, name)
		require.EqualValues(t, n, value(t, families, name, "wheel", "used"), name)
	}
	for name, n := range map[string]int64{"handed_back_total": st.HandedBack, "caller_runs_total": st.CallerRuns,
		"discarded_total": st.Discarded, "refusals_total": st.Refused, "wakeups_total": st.Wakeups, "running": st.Running, "waiting": 0, "held_up_seconds": 0, "closed": 0, "precise": 0, "shards": 1} {
		require.EqualValues(t, n, value(t, families, name, "wheel", "used"), name)
	}
	require.Equal(t, 0.001, value(t, families, "tick_seconds", "wheel", "used"))
	age := value(t, families, "age_seconds", "wheel", "used")
	require.GreaterOrEqual(t, age, before.Now.Seconds())
	require.LessOrEqual(t, age, after.Now.Seconds())

	require.Greater(t, len(st.Levels), 1)
	for i, l := range st.Levels {
		level := func(name string) float64 {
			return value(t, families, "level_"+name, "wheel", "used", "level", strconv.Itoa(i))
		}
		require.Equal(t, l.Tick.Seconds(), level("tick_seconds"))
		require.Equal(t, l.Interval.Seconds(), level("interval_seconds"))
		require.EqualValues(t, l.Slots, level("slots"))
		require.Equal(t, l.CurrentTime.Seconds(), level("current_time_seconds"))
		require.EqualValues(t, l.Buckets, level("buckets"))
		require.EqualValues(t, l.Entries, level("entries"))
		require.EqualValues(t, l.Cascaded, level("cascades_total"))
	}
	require.Len(t, families, 31, "every metric is there")
	require.EqualValues(t, len(st.Levels), len(families["timingwheel_level_slots"].Metric))
	checkLateness(t, &st.Lateness, find(families["timingwheel_lateness_seconds"], "wheel", "used").Histogram)
}

func checkLateness(t *testing.T, h *timingwheel.Histogram, got *dto.Histogram) {
	t.Helper()
	require.EqualValues(t, h.Total(), got.GetSampleCount())
	require.Equal(t, h.Sum.Seconds(), got.GetSampleSum())
	below := int64(0)
	require.Len(t, got.Bucket, timingwheel.HistogramBuckets, "and that without a bound, which the text has")
	for i, b := range got.Bucket {
		below += h.Counts[i]
		require.EqualValues(t, below, b.GetCumulativeCount())
		bound := math.Inf(1)
		if i < timingwheel.HistogramBuckets-1 {
			bound = h.UpperBound(i).Seconds()
		}
		require.Equal(t, bound, b.GetUpperBound())
	}
}

// Known latenesses, up to one that is beyond all bounds.
func TestLateness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithManualDrive(), timingwheel.WithExecutor(timingwheel.Inline()))
		defer w.Stop()
		for _, late := range []time.Duration{0, 5 * time.Microsecond, time.Millisecond, 2 * time.Minute} {
			w.AfterFunc(time.Second, noop)
			time.Sleep(time.Second + late - time.Since(time.Now().Truncate(time.Millisecond)))
			for w.Len() > 0 {
				w.Drive(0)
			}
		}
		st := w.Stats()
		require.EqualValues(t, 4, st.Lateness.Total())
		require.EqualValues(t, 1, st.Lateness.Counts[timingwheel.HistogramBuckets-1])
		families, err := registered(t, NewCollector(w, "late")).Gather()
		require.NoError(t, err)
		for _, family := range families {
			if family.GetName() == "timingwheel_lateness_seconds" {
				h := family.Metric[0].Histogram
				require.EqualValues(t, 4, h.GetSampleCount())
				last := h.Bucket[len(h.Bucket)-1]
				require.EqualValues(t, 3, last.GetCumulativeCount())
				require.InDelta(t, 67.108864, last.GetUpperBound(), 1e-9)
				return
			}
		}
		t.Error("no lateness")
	})
}

func TestLint(t *testing.T) {
	w := newUsedWheel()
	defer w.Stop()
	problems, err := testutil.CollectAndLint(NewCollector(w, "used"))
	require.NoError(t, err)
	require.Empty(t, problems)
}

// A task that holds the driver up shows while it does, and so does what waits for it.
func TestHeldUp(t *testing.T) {
	w := timingwheel.New(timingwheel.WithExecutor(timingwheel.Inline()))
	defer w.Stop()
	held, release := make(chan bool), make(chan bool)
	w.Schedule(0, func() { held <- true; <-release })
	<-held
	for range 3 {
		w.Schedule(time.Millisecond, noop)
	}
	require.Eventually(t, func() bool { return w.Stats().Waiting == 3 }, time.Minute, time.Millisecond)
	registry := registered(t, NewCollector(w, "held"))
	before := w.Stats()
	families := scrape(t, registry)
	after := w.Stats()
	seconds := value(t, families, "held_up_seconds", "wheel", "held")
	require.Positive(t, before.HeldUp)
	require.GreaterOrEqual(t, seconds, before.HeldUp.Seconds())
	require.LessOrEqual(t, seconds, after.HeldUp.Seconds())
	require.Equal(t, 3.0, value(t, families, "waiting", "wheel", "held"))
	require.Equal(t, 3.0, value(t, families, "pending", "wheel", "held"))

	close(release)
	require.Eventually(t, func() bool { return w.Len() == 0 && w.Stats().HeldUp == 0 }, time.Minute, time.Millisecond)
	families = scrape(t, registry)
	require.Zero(t, value(t, families, "held_up_seconds", "wheel", "held"))
	require.Zero(t, value(t, families, "waiting", "wheel", "held"))
}

// Names tell wheels apart, and a second wheel of the same name is refused.
func TestSeveralWheels(t *testing.T) {
	a, b := timingwheel.New(), timingwheel.New()
	defer a.Stop()
	defer b.Stop()
	a.AfterFunc(time.Hour, noop)
	registry := registered(t, NewCollector(a, "a"), NewCollector(b, "b"))
	families := scrape(t, registry)
	require.Equal(t, 1.0, value(t, families, "pending", "wheel", "a"))
	require.Equal(t, 0.0, value(t, families, "pending", "wheel", "b"))
	require.Nil(t, find(families["timingwheel_level_entries"], "wheel", "b", "level", "0"), "an unused wheel has no levels")
	require.ErrorAs(t, registry.Register(NewCollector(b, "a")), new(prometheus.AlreadyRegisteredError))
	require.True(t, registry.Unregister(NewCollector(a, "a")))
	require.NoError(t, registry.Register(NewCollector(b, "a")))
	require.Panics(t, func() { NewCollector(nil, "none") })
}

func TestCollectAfterStop(t *testing.T) {
	w := newUsedWheel()
	registry := registered(t, NewCollector(w, "stopped"))
	before := scrape(t, registry)
	w.Stop()
	after := scrape(t, registry)
	require.Equal(t, 1.0, value(t, after, "closed", "wheel", "stopped"))
	require.Equal(t, 0.0, value(t, after, "pending", "wheel", "stopped"))
	require.Equal(t, value(t, before, "pending", "wheel", "stopped"), value(t, after, "handed_back_total", "wheel", "stopped"))
	require.Equal(t, value(t, before, "cascades_total", "wheel", "stopped"), value(t, after, "cascades_total", "wheel", "stopped"))
	require.NotContains(t, after, "timingwheel_level_entries")
}

// Scrapes go on while the wheel is used and stopped, and the accounts of each are exact.
func TestScrapesDuringUse(t *testing.T) {
	w := timingwheel.New(timingwheel.WithTick(100 * time.Microsecond))
	registry := registered(t, NewCollector(w, "busy"))
	end := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-end:
					return
				default:
				}
				timer := w.AfterFunc(time.Duration(i%3000)*time.Microsecond, noop)
				if i%2 == 0 {
					timer.Stop()
				}
			}
		})
	}
	for i := range 40 {
		families := scrape(t, registry)
		of := func(name string) float64 { return value(t, families, name, "wheel", "busy") }
		require.Equal(t, of("scheduled_total"), of("expired_total")+of("stopped_total")+of("handed_back_total")+of("pending"))
		if i == 30 {
			w.Stop()
		}
	}
	close(end)
	wg.Wait()
}
