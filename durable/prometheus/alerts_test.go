package prometheus_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/enginetest"
	jobmetrics "github.com/tickwheel/tickwheel/durable/prometheus"
)

// late returns what is scraped of a queue that runs, in which jobs of two kinds are due: one
// of them nobody runs, and of the other the only slot is taken.
func late(t *testing.T) map[string]*dto.MetricFamily {
	const lease = 100 * time.Millisecond
	q, err := durable.Open(t.Context(), enginetest.NewMemory().Open(t), durable.WithLease(lease), durable.WithConcurrency(1))
	require.NoError(t, err)
	t.Cleanup(func() { q.Close() })
	release := make(chan bool)
	t.Cleanup(func() { close(release) })
	require.NoError(t, q.SetLimit(t.Context(), "others", durable.Limit{Kind: "other", Running: 1}))
	begun := make(chan bool, 1)
	q.Handle("slow", func(context.Context, *durable.Attempt) error { // also when its lease is lost
		select {
		case begun <- true:
		default:
		}
		<-release
		return nil
	})
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	go q.Run(ctx)
	_, err = q.Add(t.Context(), durable.Job{Kind: "slow"})
	require.NoError(t, err)
	<-begun
	for _, kind := range []string{"nobody's", "slow", "slow", "slow"} {
		_, err = q.Add(t.Context(), durable.Job{Kind: kind})
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		s := q.Stats()
		return len(s.Unhandled) == 1 && len(s.Backlog.Kinds) == 2 && len(s.Limits) == 1
	}, 2*time.Minute, time.Millisecond)
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(jobmetrics.NewCollector(q, "mails")))
	return scrape(t, registry)
}

func TestStuck(t *testing.T) {
	families := late(t)
	kinds := map[string]float64{}
	for _, m := range families["durable_overdue_seconds"].Metric {
		kinds[m.Label[0].GetValue()] = m.Gauge.GetValue()
	}
	require.Len(t, kinds, 2)
	require.Positive(t, kinds["slow"])
	require.Positive(t, kinds["nobody's"])
	require.GreaterOrEqual(t, families["durable_pending"].Metric[0].Gauge.GetValue(), 3.0) // one may be claimed
	for _, name := range []string{"feed", "claim", "beat", "backlog"} {
		require.Less(t, families["durable_"+name+"_age_seconds"].Metric[0].Gauge.GetValue(), 120.0, name)
	}
}

// While Run is not under way nobody knows.
func TestNoAges(t *testing.T) {
	q, err := durable.Open(t.Context(), enginetest.NewMemory().Open(t))
	require.NoError(t, err)
	defer q.Close()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(jobmetrics.NewCollector(q, "mails")))
	for name := range scrape(t, registry) {
		require.NotRegexp(t, "_age_|pending|overdue", name)
	}
}

var (
	metricName = regexp.MustCompile(`\bdurable_[a-z_]+`)
	suffix     = regexp.MustCompile(`_(bucket|count|sum)$`)
)

// Each metric that an alert or the dashboard names is one that the collector has.
func TestNamesOfMetrics(t *testing.T) {
	families := late(t)
	for _, file := range []string{"rules.yml", "rules_test.yml", "dashboard.json"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		names := metricName.FindAllString(string(text), -1)
		require.NotEmpty(t, names)
		for _, name := range names {
			family := families[name]
			if family == nil {
				family = families[suffix.ReplaceAllString(name, "")]
			}
			require.NotNil(t, family, "%s: %s", file, name)
		}
	}
}

func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	var d struct {
		Title  string
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &d))
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		require.False(t, ids[p.ID])
		ids[p.ID] = true
		require.NotEmpty(t, p.Targets, p.Title)
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				require.Less(t, at[0], 24, p.Title)
				require.Empty(t, taken[at], p.Title)
				taken[at] = p.Title
			}
		}
	}
}

// What Prometheus itself says of the rules, where its tool is there.
func TestRules(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		require.NotEqual(t, "required", os.Getenv("TICKWHEEL_PROMTOOL"), "there is no promtool: make install-servers")
		t.Skip("there is no promtool")
	}
	for _, args := range [][]string{{"check", "rules", "rules.yml"}, {"test", "rules", "rules_test.yml"}} {
		out, err := exec.CommandContext(t.Context(), tool, args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}
