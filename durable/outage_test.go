package durable_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/enginetest"
)

// An outage of an hour is in the log at most once in ten seconds for each thing that fails,
// its end is there once, and after Close there is nothing more.
func TestOutageIsLoggedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := &sick{Engine: enginetest.NewMemory().Open(t), faults: map[string]error{}}
		q, err := durable.Open(t.Context(), s, durable.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		require.NoError(t, err)
		var finished atomic.Int64
		q.Handle("good", func(context.Context, *durable.Attempt) error { finished.Add(1); return nil })
		stop := start(t, q)
		add(t, q, slices.Repeat([]durable.Job{{Kind: "good", After: 5 * time.Second}}, 100)...)
		time.Sleep(4900 * time.Millisecond) // they are held
		verbs := []string{"now", "beat", "finish", "feed"}
		for _, verb := range verbs {
			s.set(verb, errSilent)
		}
		s.interrupt()
		time.Sleep(time.Hour)
		require.EqualValues(t, 100, finished.Load())
		for _, verb := range verbs {
			s.set(verb, nil)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		lines := map[string]int{}
		for line := range strings.Lines(log.String()) {
			_, text, _ := strings.Cut(line, `msg="`)
			text, _, _ = strings.Cut(text, `"`)
			lines[text]++
		}
		for _, text := range []string{"cannot read the engine's clock", "cannot renew the lease", "cannot fetch jobs; trying again",
			"cannot store the end of an attempt; trying again"} {
			require.InDelta(t, 320, lines["durable: "+text], 60, "%s", text)
		}
		require.Equal(t, 1, lines["durable: the engine's clock can be read again"])

		s.set("now", errSilent)
		stop()
		require.NoError(t, q.Close())
		log.Reset()
		time.Sleep(time.Hour)
		require.Empty(t, log.String())
	})
}

// What reads the clock of an engine that has been closed says so once, and ends.
func TestClockOfAClosedEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := &sick{Engine: enginetest.NewMemory().Open(t), faults: map[string]error{}}
		q, err := durable.Open(t.Context(), s, durable.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		require.NoError(t, err)
		defer q.Close()
		s.set("now", durable.ErrClosed)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 1, strings.Count(log.String(), "cannot read the engine's clock"), "%s", &log)
	})
}

// silentEngine is an engine that answers nothing that is asked, until the context of that ends.
type silentEngine struct {
	driver.Engine
	on atomic.Bool
}

func (m *silentEngine) wait(ctx context.Context) error {
	<-ctx.Done()
	return errors.Join(durable.ErrUncertain, ctx.Err())
}

func (m *silentEngine) Insert(ctx context.Context, recs []driver.Record) ([]durable.Ref, []error) {
	if m.on.Load() {
		return make([]durable.Ref, len(recs)), slices.Repeat([]error{m.wait(ctx)}, len(recs))
	}
	return m.Engine.Insert(ctx, recs)
}

func (m *silentEngine) FlowControl(ctx context.Context) (*driver.FlowControl, error) {
	if m.on.Load() {
		return nil, m.wait(ctx)
	}
	return m.Engine.FlowControl(ctx)
}

func (m *silentEngine) Work(ctx context.Context, c driver.WorkConfig) (driver.Worker, error) {
	if m.on.Load() {
		return nil, m.wait(ctx)
	}
	w, err := m.Engine.Work(ctx, c)
	return silentWorker{w, m}, err
}

type silentWorker struct {
	driver.Worker
	m *silentEngine
}

func (w silentWorker) Finish(ctx context.Context, outs []driver.Completion) []error {
	if w.m.on.Load() {
		return slices.Repeat([]error{w.m.wait(ctx)}, len(outs))
	}
	return w.Worker.Finish(ctx, outs)
}

func (w silentWorker) Heartbeat(ctx context.Context) error {
	if w.m.on.Load() {
		return w.m.wait(ctx)
	}
	return w.Worker.Heartbeat(ctx)
}

// Claim is not cut off, as that of PostgreSQL is not.
func (w silentWorker) Claim(ctx context.Context, held []*driver.Delivery) []driver.ClaimResult {
	if w.m.on.Load() {
		time.Sleep(5 * time.Second)
		return slices.Repeat([]driver.ClaimResult{{Status: driver.RetryLater, After: time.Millisecond}}, len(held))
	}
	return w.Worker.Claim(ctx, held)
}

func (w silentWorker) Release(ctx context.Context, held []*driver.Delivery, after time.Duration) error {
	if w.m.on.Load() {
		return w.m.wait(ctx)
	}
	return w.Worker.Release(ctx, held, after)
}

func (w silentWorker) Close(ctx context.Context) error {
	if w.m.on.Load() {
		return w.m.wait(ctx)
	}
	return w.Worker.Close(ctx)
}

// Close returns though the engine does not answer, however many jobs are being added and
// however long the lease is. Each of these calls of Add has an error.
func TestCloseOfASilentEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &silentEngine{Engine: enginetest.NewMemory().Open(t)}
		q, err := durable.Open(t.Context(), m, durable.WithLease(time.Hour), durable.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		q.Handle("k", func(context.Context, *durable.Attempt) error { return nil })
		done := make(chan error, 1)
		go func() { done <- q.Run(t.Context()) }()
		add(t, q, durable.Job{Kind: "k", After: 5 * time.Second})
		m.on.Store(true)
		time.Sleep(10 * time.Second) // the end of the attempt is on its way
		added := make(chan error, 1)
		go func() {
			refs, err := q.AddMany(t.Context(), slices.Repeat([]durable.Job{{Kind: "k"}}, 10_000)...)
			require.Equal(t, make([]durable.Ref, 10_000), refs)
			added <- err
		}()
		synctest.Wait()
		began := time.Now()
		require.NoError(t, q.Close())
		require.LessOrEqual(t, time.Since(began), 16*time.Second)
		require.NoError(t, <-done)
		err = <-added
		require.ErrorIs(t, err, durable.ErrUncertain, "what was on its way")
		require.ErrorIs(t, err, durable.ErrClosed, "what was not")
	})
}

// While the engine answers nothing, Run returns within the grace, the lease and three seconds, whatever the
// worker holds. All that was not stored runs again elsewhere.
func TestRunEndsWhileTheEngineIsSilent(t *testing.T) {
	const lease, grace = 4 * time.Second, 3 * time.Second
	for name, c := range map[string]struct {
		silent   time.Duration // before the end of Run
		handlers bool          // some run until the grace is over
		opts     []durable.Option
		within   time.Duration
	}{
		"at once, nothing runs":    {0, false, []durable.Option{durable.WithLease(lease), durable.WithGrace(grace)}, 8 * time.Second},
		"at once":                  {0, true, []durable.Option{durable.WithLease(lease), durable.WithGrace(grace)}, grace + 8*time.Second},
		"for a second":             {time.Second, true, []durable.Option{durable.WithLease(lease), durable.WithGrace(grace)}, grace + 8*time.Second},
		"for a minute":             {time.Minute, true, []durable.Option{durable.WithLease(lease), durable.WithGrace(grace)}, grace + 8*time.Second},
		"a short grace":            {time.Second, true, []durable.Option{durable.WithLease(lease), durable.WithGrace(time.Millisecond)}, 8*time.Second + time.Millisecond},
		"no grace":                 {time.Second, false, []durable.Option{durable.WithLease(lease)}, 8 * time.Second},
		"a cooldown":               {time.Second, true, []durable.Option{durable.WithLease(lease), durable.WithGrace(grace)}, grace + 8*time.Second},
		"a lease of half a minute": {time.Second, true, []durable.Option{durable.WithGrace(grace)}, grace + 33*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := enginetest.NewMemory()
				m := &silentEngine{Engine: store.Open(t)}
				opts := append(c.opts, durable.WithLogger(slog.New(slog.DiscardHandler)))
				q, err := durable.Open(t.Context(), m, opts...)
				require.NoError(t, err)
				defer q.Close()
				q.Handle("quick", func(context.Context, *durable.Attempt) error { return nil })
				q.Handle("slow", func(ctx context.Context, _ *durable.Attempt) error {
					<-ctx.Done()
					if name == "a cooldown" {
						return durable.Cooldown(time.Hour, ctx.Err())
					}
					return ctx.Err()
				})
				var ran atomic.Int64
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- q.Run(ctx) }()
				n := int64(0)
				if c.handlers {
					n += int64(len(add(t, q, slices.Repeat([]durable.Job{{Kind: "slow"}}, 3)...)))
				}
				n += int64(len(add(t, q, // one ends, one is held, one is to be claimed
					durable.Job{Kind: "quick", After: 4 * time.Second}, durable.Job{Kind: "quick", After: 7 * time.Second},
					durable.Job{Kind: "quick", Key: "k", FreeWhenBegun: true, After: 4 * time.Second})))
				time.Sleep(4*time.Second - time.Millisecond)
				m.on.Store(true)
				time.Sleep(c.silent)
				began := time.Now()
				stop()
				require.NoError(t, <-done)
				require.LessOrEqual(t, time.Since(began), c.within)

				other, err := durable.Open(t.Context(), store.Open(t), opts...)
				require.NoError(t, err)
				defer other.Close()
				for _, kind := range []string{"quick", "slow"} {
					other.Handle(kind, func(context.Context, *durable.Attempt) error { ran.Add(1); return nil })
				}
				defer start(t, other)()
				time.Sleep(2 * time.Minute)
				require.Equal(t, n, ran.Load())
			})
		})
	}
}

// A process that is told to end while the engine does not answer has not failed. One that the
// engine refuses has.
func TestRunEndsBeforeItHasAWorker(t *testing.T) {
	for _, by := range []string{"ctx", "deadline", "Close"} {
		t.Run(by, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				m := &silentEngine{Engine: enginetest.NewMemory().Open(t)}
				q, err := durable.Open(t.Context(), m, durable.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				require.NoError(t, err)
				q.Handle("k", func(context.Context, *durable.Attempt) error { return nil })
				m.on.Store(true)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				done := make(chan error, 1)
				go func() { done <- q.Run(ctx) }()
				synctest.Wait()
				switch by {
				case "ctx":
					cancel()
				case "deadline":
					time.Sleep(time.Hour)
				default:
					require.NoError(t, q.Close())
				}
				require.NoError(t, <-done)
				require.Equal(t, 1, strings.Count(log.String(), "before the engine made a worker"), "%s", &log)
				require.NoError(t, q.Close())
			})
		})
	}
	s := &sick{Engine: enginetest.NewMemory().Open(t), faults: map[string]error{"work": durable.ErrVersion}}
	q, err := durable.Open(t.Context(), s)
	require.NoError(t, err)
	defer q.Close()
	q.Handle("k", func(context.Context, *durable.Attempt) error { return nil })
	ctx, cancel := context.WithCancel(t.Context())
	require.ErrorIs(t, q.Run(ctx), durable.ErrVersion)
	cancel()
	require.ErrorIs(t, q.Run(ctx), durable.ErrVersion)
}

// While the engine makes no worker, the log and Health say so, whether it gives a reason or no answer.
func TestWaitForWorkerIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		fault        error
		line, health string
	}{
		"read-only": {driver.ErrReadOnly, "cannot fetch jobs; trying again", "has made no worker for"},
		"no answer": {errSilent, "the engine has made no worker for", "has made no worker for"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				s := &sick{Engine: enginetest.NewMemory().Open(t), faults: map[string]error{"work": c.fault}}
				q, err := durable.Open(t.Context(), s, durable.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				require.NoError(t, err)
				q.Handle("good", func(context.Context, *durable.Attempt) error { return nil })
				stop := start(t, q)
				require.NoError(t, q.Health(t.Context()))
				time.Sleep(time.Hour)
				synctest.Wait()
				require.InDelta(t, 360, strings.Count(log.String(), c.line), 60)
				require.ErrorContains(t, q.Health(t.Context()), c.health)
				s.set("work", nil)
				if c.fault == driver.ErrReadOnly {
					time.Sleep(time.Minute)
					require.NoError(t, q.Health(t.Context()))
				}
				stop()
				require.NoError(t, q.Health(t.Context()))
				require.NoError(t, q.Close())
			})
		})
	}
}
