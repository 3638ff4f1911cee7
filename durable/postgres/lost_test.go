package postgres_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/enginetest"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

func record(id string, due time.Time) driver.Record {
	now := time.Now().Truncate(time.Microsecond)
	due = due.Truncate(time.Microsecond)
	return driver.Record{ID: id, Job: driver.Job{Kind: "k", At: due, MaxAttempts: 3}, Due: due, Born: now}
}

// modes are how pgx may send statements, as a user's DSN has them: each has a way of its own
// to say that an answer was lost.
var modes = []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"}

// What was committed and its answer lost is done once where that can be known: an insert,
// a claim and an end. Where it cannot, the caller is told.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	srv := shared.Test(t)
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := newStore(srv)
			s.params += "&default_query_exec_mode=" + mode
			lostAnswers(t, s)
		})
	}
}

func lostAnswers(t *testing.T, s *store) {
	e, p := s.behindProxy(t)
	ctx := t.Context()
	w, err := e.Work(ctx, driver.WorkConfig{Name: "w", Kinds: driver.NewKindSet([]string{"k"}), Lease: time.Minute, Ahead: time.Second, Retention: time.Hour})
	require.NoError(t, err)
	far := time.Now().Add(time.Hour)
	// lose loses the answer to f, which is called before, so that nothing but it is sent.
	lose := func(f func(id string)) {
		t.Helper()
		f("before")
		before := p.cuts.Load()
		p.cutNext.Store(true)
		f("lost")
		require.Equal(t, before+1, p.cuts.Load())
	}
	insert := func(rec driver.Record) driver.Ref {
		refs, errs := e.Insert(ctx, []driver.Record{rec})
		require.NoError(t, errs[0])
		return refs[0]
	}
	count := func() (n int) {
		for _, err := range e.Scan(ctx, driver.Filter{}) {
			require.NoError(t, err)
			n++
		}
		return n
	}
	lose(func(id string) { insert(record(id, far)) })
	require.Equal(t, 2, count())
	refs := map[string]driver.Ref{"before": insert(record("c", far)), "lost": insert(record("d", far))}
	lose(func(id string) {
		oks, errs := e.Cancel(ctx, []driver.Ref{refs[id]})
		if id == "lost" {
			require.ErrorIs(t, errs[0], driver.ErrUncertain)
			return
		}
		require.NoError(t, errs[0])
		require.True(t, oks[0])
	})
	_, err = e.Get(ctx, refs["lost"])
	require.ErrorIs(t, err, driver.ErrNotFound, "it was canceled")

	held := make(chan *driver.Delivery, 10)
	feeding, stop := context.WithCancel(ctx)
	fed := make(chan error)
	_, errs := s.open(t).Insert(ctx, []driver.Record{record("a", time.Now()), record("b", time.Now())}) // e announces nothing
	require.NoError(t, errors.Join(errs...))
	go func() {
		fed <- w.Fetch(feeding, func(hs []*driver.Delivery) {
			for _, h := range hs {
				held <- h
			}
		})
	}()
	a, b := <-held, <-held
	stop()
	require.NoError(t, <-fed)
	require.Eventually(t, func() bool { return p.pool.Stat().AcquiredConns() == 0 }, patience, time.Millisecond)
	lose(func(id string) {
		h := map[string]*driver.Delivery{"before": a, "lost": b}[id]
		v := w.Claim(ctx, []*driver.Delivery{h})[0]
		if id == "lost" {
			require.Equal(t, driver.RetryLater, v.Status)
		}
		for v.Status == driver.RetryLater { // as from a server that is busy
			v = w.Claim(ctx, []*driver.Delivery{h})[0]
		}
		require.Equal(t, driver.ClaimResult{Status: driver.Granted, Attempt: 1}, v)
	})
	lose(func(id string) {
		h := map[string]*driver.Delivery{"before": a, "lost": b}[id]
		require.Eventually(t, func() bool { return w.Finish(ctx, []driver.Completion{{Delivery: h, End: driver.Done}})[0] == nil }, patience, time.Millisecond)
	})
	for _, h := range []*driver.Delivery{a, b} {
		_, err := e.Get(ctx, h.Ref)
		require.ErrorIs(t, err, driver.ErrNotFound)
	}
	require.ErrorIs(t, w.Finish(ctx, []driver.Completion{{Delivery: a, End: driver.Done}})[0], driver.ErrLeaseLost)
}

// A beat that has found the lease over, and whose answer was lost, must not hide that: another
// may have taken over. A worker whose machine was suspended does not see it by its own clock.
func TestLostBeatHidesNoLostLease(t *testing.T) {
	t.Parallel()
	e, p := sharedStore(t).behindProxy(t)
	const lease = 2 * time.Second
	w, err := e.Work(t.Context(), driver.WorkConfig{Name: "w", Kinds: driver.NewKindSet([]string{"k"}), Lease: lease, Ahead: time.Second, Retention: time.Hour})
	require.NoError(t, err)
	_ = w.Heartbeat(t.Context())
	for lost := false; !lost; { // one may take too long before, and another connection may be cut
		time.Sleep(lease + 10*time.Millisecond)
		before := p.cuts.Load()
		p.cutNext.Store(true)
		err := w.Heartbeat(t.Context())
		require.Error(t, err)
		lost = p.cuts.Load() > before && !errors.Is(err, driver.ErrLeaseLost)
	}
	var again error
	require.Eventually(t, func() bool {
		again = w.Heartbeat(t.Context())
		return again == nil || errors.Is(again, driver.ErrLeaseLost)
	}, patience, time.Millisecond)
	require.ErrorIs(t, again, driver.ErrLeaseLost)
}

// lossy is a store that loses the answers to some of what users ask.
type lossy struct{ *store }

type lossyEngine struct {
	driver.Engine
	p *proxy
}

func (s lossy) Open(t testing.TB) driver.Engine {
	e, p := s.behindProxy(t)
	return lossyEngine{e, p}
}

// lose has one answer in ten be lost: this one, or what another is told before.
func (e lossyEngine) lose() { e.p.cutNext.Store(rand.N(10) == 0) }

func (e lossyEngine) Insert(ctx context.Context, recs []driver.Record) ([]driver.Ref, []error) {
	e.lose()
	return e.Engine.Insert(ctx, recs)
}

func (e lossyEngine) Cancel(ctx context.Context, refs []driver.Ref) ([]bool, []error) {
	e.lose()
	return e.Engine.Cancel(ctx, refs)
}

// However many answers are lost, each job that was accepted has one end.
func TestAccountsWithLostAnswers(t *testing.T) {
	t.Parallel()
	srv := shared.Test(t)
	for _, mode := range []string{"cache_statement", "exec"} { // that of users, and of those behind a PgBouncer
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			enginetest.RunOnly(t, func(testing.TB) enginetest.Store {
				s := newStore(srv)
				s.params += "&default_query_exec_mode=" + mode
				return lossy{s}
			}, "Accounts")
		})
	}
}

// What a worker gives back late, after a claim that was not answered, is not the same job as it
// was handed out to it once more and claimed.
func TestReleaseOfEarlierHandle(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e := s.open(t)
	const lease = 2 * time.Second
	w, err := e.Work(t.Context(), driver.WorkConfig{Name: "w", Kinds: driver.NewKindSet([]string{"k"}), Lease: lease, Ahead: time.Second, Retention: time.Hour})
	require.NoError(t, err)
	_, errs := e.Insert(t.Context(), []driver.Record{record("a", time.Now()), record("b", time.Now())})
	require.NoError(t, errors.Join(errs...))
	poll := func() (held []*driver.Delivery) {
		require.Eventually(t, func() bool {
			some, err := postgres.Poll(t.Context(), w)
			require.NoError(t, err)
			held = append(held, some...)
			return len(held) == 2
		}, patience, 100*time.Millisecond)
		return held
	}
	first := poll()
	for _, h := range first {
		postgres.LoseClaim(w, h)
	}
	second := poll()
	for _, v := range w.Claim(t.Context(), second) {
		require.Equal(t, driver.Granted, v.Status)
	}
	require.NoError(t, w.Release(t.Context(), first, 0))
	for _, err := range w.Finish(t.Context(), []driver.Completion{{Delivery: second[0], End: driver.Done}}) {
		require.NoError(t, err)
	}

	// Its own it gives back, also where it does not know that it has it.
	postgres.LoseClaim(w, second[1])
	require.NoError(t, w.Release(t.Context(), second[1:], 0))
	info, err := e.Get(t.Context(), second[1].Ref)
	require.NoError(t, err)
	require.Equal(t, driver.Waiting, info.State)
}

// A record whose insert is repeated, since its answer was lost, has the Ref of the job that it has gone into.
func TestRepeatedInsertIntoDue(t *testing.T) {
	t.Parallel()
	e := sharedStore(t).open(t)
	due := record("due", time.Now())
	due.Key = "k"
	want := insertAll(t, e, due)
	next := record("next", time.Now().Add(time.Hour))
	next.Key, next.OnKey, next.Payload = "k", driver.KeyReplace, []byte("next")
	require.Equal(t, want, insertAll(t, e, next))
	refs, errs := e.Insert(t.Context(), []driver.Record{next})
	require.NoError(t, errs[0])
	require.Equal(t, want, refs)
}
