package prometheus

import (
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/purgatory"
	"github.com/tickwheel/tickwheel/timingwheel"
)

// usedPurgatory returns one in which every figure is another, and none 0.
func usedPurgatory(t *testing.T, w *timingwheel.TimingWheel) *purgatory.Purgatory[string] {
	t.Helper()
	p := purgatory.New[string](w)
	park := func(n int, d time.Duration, hold bool, keys ...string) {
		for range n {
			_, err := p.Park(d, func() bool { return hold }, nil, keys...)
			require.NoError(t, err)
		}
	}
	park(1, time.Hour, true, "a")
	park(3, 0, false, "a")
	park(4, time.Hour, false, "a")
	require.Equal(t, 4, p.CancelKey("a"))
	_, err := p.Park(time.Hour, nil, nil, "a")
	require.NoError(t, err)
	require.Equal(t, 1, p.Notify("a"))
	park(5, time.Hour, false, "a", "b", "c", "d", "e", "f", "g")
	return p
}

func TestScrapeOfPurgatoryIsStats(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	p := usedPurgatory(t, w)
	registry := registered(t, NewPurgatoryCollector(p, "polls"))
	check := func() {
		t.Helper()
		st := reflect.ValueOf(p.Stats())
		families := scrape(t, registry)
		require.Len(t, families, st.NumField(), "every field is there")
		for i := range st.NumField() {
			name := "purgatory_" + strings.ToLower(st.Type().Field(i).Name)
			family, got := families[name], 0.0
			if family != nil {
				got = find(family, "purgatory", "polls").Gauge.GetValue()
			} else {
				family = families[name+"_total"]
				require.Equal(t, dto.MetricType_COUNTER, family.GetType(), name)
				got = find(family, "purgatory", "polls").Counter.GetValue()
			}
			require.EqualValues(t, st.Field(i).Int(), got, name)
		}
	}
	check()
	require.Equal(t, purgatory.Stats{Parked: 14, Satisfied: 2, Expired: 3, Canceled: 4, Pending: 5, Immediate: 1, Watched: 35, Keys: 7, Checks: 22}, p.Stats())
	p.Close()
	check()
	require.EqualValues(t, 5, p.Stats().Closed)
}

func TestScrapeOfThreshold(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	th := purgatory.NewThreshold[int](w)
	for v := range 5 {
		_, err := th.Park(v, time.Hour, nil)
		require.NoError(t, err)
	}
	th.Advance(2)
	families := scrape(t, registered(t, NewPurgatoryCollector(th, "offsets")))
	require.Equal(t, 5.0, find(families["purgatory_parked_total"], "purgatory", "offsets").Counter.GetValue())
	require.Equal(t, 3.0, find(families["purgatory_satisfied_total"], "purgatory", "offsets").Counter.GetValue())
	require.Equal(t, 2.0, find(families["purgatory_pending"], "purgatory", "offsets").Gauge.GetValue())
}

func TestLintPurgatory(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	problems, err := testutil.CollectAndLint(NewPurgatoryCollector(purgatory.New[int](w), "polls"))
	require.NoError(t, err)
	require.Empty(t, problems)
	require.PanicsWithValue(t, "prometheus: NewPurgatoryCollector: nil purgatory", func() { NewPurgatoryCollector(nil, "none") })
}

func TestSeveralPurgatories(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	a, b := purgatory.New[int](w), purgatory.New[string](w)
	_, err := a.Park(time.Hour, nil, nil, 1)
	require.NoError(t, err)
	registry := registered(t, NewCollector(w, "a"), NewPurgatoryCollector(a, "a"), NewPurgatoryCollector(b, "b"))
	families := scrape(t, registry)
	require.Equal(t, 1.0, find(families["purgatory_pending"], "purgatory", "a").Gauge.GetValue())
	require.Equal(t, 0.0, find(families["purgatory_pending"], "purgatory", "b").Gauge.GetValue())
	require.ErrorAs(t, registry.Register(NewPurgatoryCollector(b, "a")), new(prometheus.AlreadyRegisteredError))
}

func TestScrapesOfPurgatoryDuringUse(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	p := purgatory.New[int](w)
	registry := registered(t, NewPurgatoryCollector(p, "busy"))
	var users sync.WaitGroup
	for g := range 4 {
		users.Go(func() {
			for i := range 2000 {
				p.Park(time.Hour, nil, nil, g, i)
				p.Notify(i)
			}
		})
	}
	for range 20 {
		families := scrape(t, registry)
		require.GreaterOrEqual(t, find(families["purgatory_pending"], "purgatory", "busy").Gauge.GetValue(), 0.0)
	}
	users.Wait()
	require.EqualValues(t, 8000, find(scrape(t, registry)["purgatory_parked_total"], "purgatory", "busy").Counter.GetValue())
}
