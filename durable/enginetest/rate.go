package enginetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// A Clocked is a Store whose engines can have a clock that is wrong. The tests RateAfterAStep, RateByTwoClocks and
// RateGoesOn skip other Stores.
type Clocked interface {
	// OpenClocked is Open of an engine whose server shows it a time that is ahead by so much. The function set changes that.
	OpenClocked(t testing.TB, ahead time.Duration) (e driver.Engine, set func(ahead time.Duration))
}

func openClocked(t *testing.T, s Store, ahead time.Duration) (driver.Engine, func(time.Duration)) {
	store, ok := s.(Clocked)
	if !ok {
		t.Skip("a store whose clock cannot be set")
	}
	return store.OpenClocked(t, ahead)
}

// Of a clock that is set back by 20 s one job more begins than Burst + Rate * t, and the rate goes on at once.
func rateAfterAStep(t *testing.T, s Store) {
	e, set := openClocked(t, s, clockStep)
	r := newRated(t, e)
	r.claim(10)
	set(0)
	await(t, "the step is seen", func() bool { return time.Until(r.now()).Abs() < clockStep/2 })
	r.claim(40)
}

// Of two clocks that are 20 s apart, by which jobs are claimed alternately, no more begin than of one that is set back.
func rateByTwoClocks(t *testing.T, s Store) {
	e, _ := openClocked(t, s, clockStep)
	right, _ := openClocked(t, s, 0)
	newRated(t, e, right).claim(40)
}

// A Queue whose jobs wait for tokens begins them at the Rate after the clock was set back by an hour.
func rateGoesOn(t *testing.T, s Store) {
	e, set := openClocked(t, s, 0)
	r := open(t, e).handle(kind, nil)
	r.limit("rate", durable.Limit{Rate: ratedRate, Burst: ratedBurst})
	r.add(times(40, durable.Job{Kind: kind})...) // due by the clock that is set back, too
	set(time.Hour)
	await(t, "the step is seen", func() bool { return time.Until(r.now()) > time.Hour/2 })
	r.start().awaitRuns(10)
	set(0)
	r.awaitRuns(40)
	empty(t, r)
}

const clockStep = 20 * time.Second

const (
	ratedRate  = 10
	ratedBurst = 5
)

// rated is workers that claim jobs that a Rate covers. It counts no handlers, which a busy machine begins late and
// together, but claims, with the time that they took.
type rated struct {
	*rig
	workers []*crashing
	held    [][]*driver.Delivery // of each worker
	granted int
	began   time.Time
}

// newRated returns a worker on each engine, which holds jobs of a kind of its own. They are due by the clock of that engine.
func newRated(t *testing.T, engines ...driver.Engine) *rated {
	r := &rated{}
	for i, e := range engines {
		r.rig = open(t, e)
		r.limit("rate", durable.Limit{Rate: ratedRate, Burst: ratedBurst})
		own := []string{kind, "later"}[i]
		w := newCrashing(t, e, own, func(c *driver.WorkConfig) { c.Kinds = driver.NewKindSet([]string{own}) }).beating()
		r.workers, r.held = append(r.workers, w), append(r.held, w.takeAll(r.add(times(60, durable.Job{Kind: own})...)))
	}
	r.began = time.Now()
	return r
}

// claim claims by one worker after the other, until so many claims are granted in all.
func (r *rated) claim(n int) {
	for i := 0; r.granted < n; i = (i + 1) % len(r.workers) {
		v := claimPatiently(r.t, r.workers[i], exact(r.held[i][0])[0])
		if v.Status != driver.Granted {
			require.Equal(r.t, driver.Throttled, v.Status)
			require.Less(r.t, v.After, clockStep/2, "the rate goes on")
			breathe()
			continue
		}
		r.granted, r.held[i] = r.granted+1, r.held[i][1:]
		since := time.Since(r.began) + driver.TokenAhead
		require.LessOrEqual(r.t, float64(r.granted), ratedBurst+1+ratedRate*since.Seconds(), "after %v", since)
	}
}
