package worker

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/clock"
	"github.com/tickwheel/tickwheel/durable/internal/recur"
	"github.com/tickwheel/tickwheel/durable/internal/worker/attempt"
	"github.com/tickwheel/tickwheel/timingwheel"
)

func TestLeaseStands(t *testing.T) {
	const length = 8 * time.Second
	now := time.Now()
	for age, want := range map[time.Duration]standing{
		0: sound, 7*time.Second - 1: sound, 7 * time.Second: doubtful, 8*time.Second - 1: doubtful, 8 * time.Second: over, time.Hour: over,
	} {
		l := newLease(length, now)
		require.Equal(t, want, l.at(now.Add(age)), age)
	}
	// The machine was suspended, and its monotonic clock with it, or the wall clock was set.
	l := newLease(length, now)
	l.wall = l.wall.Add(-time.Hour)
	require.Equal(t, doubtful, l.at(now))
	l.wall = now.Round(0).Add(time.Hour)
	require.Equal(t, sound, l.at(now), "it was set back")
}

// answering is an engine's worker whose beats are answered as it is told to.
type answering struct {
	driver.Worker
	beats    []error
	asked    int
	released []driver.Ref
}

func (a *answering) Heartbeat(context.Context) error {
	err := a.beats[min(a.asked, len(a.beats)-1)]
	a.asked++
	return err
}

func (a *answering) Release(_ context.Context, held []*driver.Delivery, _ time.Duration) error {
	for _, h := range held {
		a.released = append(a.released, h.Ref)
	}
	return nil
}

func (a *answering) Finish(_ context.Context, outs []driver.Completion) []error {
	return make([]error, len(outs))
}

func (a *answering) Claim(_ context.Context, held []*driver.Delivery) []driver.ClaimResult {
	verdicts := make([]driver.ClaimResult, len(held))
	for i := range verdicts {
		verdicts[i] = driver.ClaimResult{Status: driver.Granted, Attempt: 1}
	}
	return verdicts
}

// woken is a worker none of whose goroutines has noticed yet that its machine stood
// still, with one claimed job whose time has come. ran counts handlers.
func woken(t *testing.T, a *answering, since time.Time) (w *Worker, held *driver.Delivery, ran *int) {
	now := func(context.Context) (time.Time, time.Duration, error) { return time.Now(), 0, nil }
	c, err := clock.New(t.Context(), now)
	require.NoError(t, err)
	ran = new(int)
	conf := Defaults()
	conf.Clock, conf.Requests, conf.Closed, conf.Counters = c, t.Context(), t.Context(), &Counters{}
	conf.Handlers = map[string]attempt.Handler{"k": func(context.Context, *attempt.Attempt) error { *ran++; return nil }}
	conf.Log = slog.New(slog.DiscardHandler)
	conf.Times = recur.NewCalendar(nil, conf.Log, conf.Clock.Time, nil)
	w = newWorker(conf, a, driver.NewKindSet([]string{"k"}), since)
	w.wheel = timingwheel.New()
	t.Cleanup(func() { w.wheel.Stop() })
	w.link.drained = t.Context()
	held = &driver.Delivery{Ref: "r", Record: driver.Record{Job: driver.Job{Kind: "k", MaxAttempts: 25}, Due: time.Now().Add(-time.Second)}}
	w.silent = false
	require.True(t, w.admit(t.Context(), held))
	synctest.Wait()
	w.claim(t.Context())
	synctest.Wait()
	return w, held, ran
}

// wokenAgain is woken where the job has run. It returns another one.
func wokenAgain(t *testing.T, a *answering) (w *Worker, again *driver.Delivery, ran *int) {
	w, held, ran := woken(t, a, time.Now())
	require.Equal(t, 1, *ran)
	*ran = 0
	other := *held
	other.Ref = "again"
	return w, &other, ran
}

// A handler looks for itself how old the lease is, whoever else finds that out later.
func TestNoBeginUnderALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answering{beats: []error{nil}}
		w, held, ran := woken(t, a, time.Now().Add(-30*time.Second))
		require.Zero(t, *ran)
		require.Zero(t, w.dispatcher.Counts().Held)
		require.Equal(t, []driver.Ref{held.Ref}, a.released)
		require.False(t, w.admit(t.Context(), held), "nothing is taken before a beat is answered")
		w.renew(t.Context(), time.Now())
		require.True(t, w.admit(t.Context(), held))
		synctest.Wait()
		w.claim(t.Context())
		synctest.Wait()
		require.Equal(t, 1, *ran)
	})
}

// The look is right before the handler, on its goroutine: a job that was sent there
// before the machine stood still has not begun by then. A handler in doubt begins when a
// beat is answered, unless its job was canceled or the worker ends.
func TestHandlerLooksItself(t *testing.T) {
	doubt := func(w *Worker) { w.lease.renew(time.Now().Add(-27 * time.Second)) }
	for name, c := range map[string]struct {
		meanwhile      func(w *Worker) // before the handler looks
		runs, released int
	}{
		"over":             {func(w *Worker) { w.lease.renew(time.Now().Add(-30 * time.Second)) }, 0, 1},
		"lost and renewed": {func(w *Worker) { w.lose(time.Now()); w.lease.renew(time.Now()); w.silent = false }, 0, 1},
		"doubt":            {doubt, 1, 0},
		"doubt, draining":  {func(w *Worker) { doubt(w); w.draining = true }, 0, 1},
		"doubt, canceled":  {func(w *Worker) { doubt(w); w.cancel("again") }, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &answering{beats: []error{nil}}
				w, again, ran := wokenAgain(t, a)
				w.admit(t.Context(), again)
				now := w.lock()
				jobs := w.dispatcher.Claims(now)
				w.dispatcher.Answered(jobs, a.Claim(t.Context(), []*driver.Delivery{again}), now)
				w.act(now) // its goroutine waits for the lock
				c.meanwhile(w)
				w.mu.Unlock()
				synctest.Wait()
				require.Zero(t, *ran)
				w.renew(t.Context(), time.Now())
				time.Sleep(endsLinger) // the ends are written down
				synctest.Wait()
				require.Equal(t, c.runs, *ran)
				require.Len(t, a.released, c.released)
				require.Zero(t, w.dispatcher.Counts().Held)
				require.Zero(t, w.dispatcher.Counts().Running)
			})
		})
	}
}

var errNoAnswer = errors.New("no answer")

// Where the lease is in doubt a beat is asked for at once. It decides.
func TestBeatDecides(t *testing.T) {
	for answer, runs := range map[error]int{nil: 1, driver.ErrLeaseLost: 0} {
		synctest.Test(t, func(t *testing.T) {
			a := &answering{beats: []error{errNoAnswer, answer}}
			w, again, ran := wokenAgain(t, a)
			w.lease.wall = w.lease.wall.Add(-time.Hour)
			require.True(t, w.admit(t.Context(), again))
			synctest.Wait()
			w.claim(t.Context())
			synctest.Wait()
			require.Zero(t, *ran)
			<-w.renewNow // a heartbeat is asked for
			for range a.beats {
				w.renew(t.Context(), time.Now())
				synctest.Wait()
			}
			require.Equal(t, runs, *ran)
			require.Len(t, a.released, 1-runs)
		})
	}
}

// A claim whose answer comes after the lease was lost is dropped.
func TestLateClaimIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answering{beats: []error{nil}}
		w, again, ran := wokenAgain(t, a)
		require.True(t, w.admit(t.Context(), again))
		time.Sleep(endsLinger) // the first one's end is written down
		synctest.Wait()
		w.link.engine = &losing{a, w}
		w.claim(t.Context())
		synctest.Wait()
		require.Zero(t, *ran)
		require.Zero(t, w.dispatcher.Counts().Held)
		require.Equal(t, []driver.Ref{"again"}, a.released)
	})
}

// losing loses its lease, and has it again, while it claims.
type losing struct {
	*answering
	w *Worker
}

func (l *losing) Claim(ctx context.Context, held []*driver.Delivery) []driver.ClaimResult {
	now := l.w.lock()
	l.w.lose(now.Local)
	l.w.unlockAndAct(now)
	l.w.renew(ctx, time.Now().Add(time.Millisecond))
	return l.answering.Claim(ctx, held)
}
