package prometheus

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"

	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

// A pool is busy, full, idle and closed, and each scrape is what its Stats says.
func TestPoolScrapeIsStats(t *testing.T) {
	p := pool.New(2, 3, pool.Wait)
	w := timingwheel.New(timingwheel.WithExecutor(p))
	defer w.Stop()
	registry := registered(t, NewPoolCollector(p, "workers"), NewCollector(w, "workers"))
	check := func(running, queued, waiting int64, closed float64) {
		t.Helper()
		want := pool.Stats{Workers: 2, Queue: 3, Running: running, Queued: queued, Waiting: waiting, Closed: closed == 1}
		require.Eventually(t, func() bool { return p.Stats() == want }, time.Minute, time.Millisecond, "%+v", want)
		families := scrape(t, registry)
		require.Len(t, families, 6+24, "those of a pool, and those of a wheel without levels")
		for name, n := range map[string]float64{"workers": 2, "queue_capacity": 3, "running": float64(running),
			"queued": float64(queued), "waiting": float64(waiting), "closed": closed} {
			require.Equal(t, n, value(t, families, "pool_"+name, "pool", "workers"), name)
		}
		require.EqualValues(t, waiting, value(t, families, "waiting", "wheel", "workers"))
	}
	check(0, 0, 0, 0)
	release := make(chan bool)
	for range 9 {
		w.Schedule(0, func() { <-release })
	}
	check(2, 3, 4, 0)
	release <- true
	check(2, 3, 3, 0)
	close(release)
	check(0, 0, 0, 0)
	p.Close()
	check(0, 0, 0, 1)
}

func TestPoolLint(t *testing.T) {
	p := pool.New(1, 0, pool.Wait)
	defer p.Close()
	problems, err := testutil.CollectAndLint(NewPoolCollector(p, "workers"))
	require.NoError(t, err)
	require.Empty(t, problems)
}

// Names tell Pools apart, and a second Pool of the same name is refused.
func TestSeveralPools(t *testing.T) {
	a := pool.New(1, 0, pool.Wait)
	b := pool.New(2, 0, pool.CallerRuns)
	defer a.Close()
	defer b.Close()
	registry := registered(t, NewPoolCollector(a, "a"), NewPoolCollector(b, "b"))
	families := scrape(t, registry)
	require.Equal(t, 1.0, value(t, families, "pool_workers", "pool", "a"))
	require.Equal(t, 2.0, value(t, families, "pool_workers", "pool", "b"))
	require.ErrorAs(t, registry.Register(NewPoolCollector(b, "a")), new(prometheus.AlreadyRegisteredError))
	require.Panics(t, func() { NewPoolCollector(nil, "none") })
}
