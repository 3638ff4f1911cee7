package durable_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/enginetest"
	"github.com/tickwheel/tickwheel/durable/memory"
)

// bubble runs f with a Queue on the simplest engine, in a bubble whose clock is exact.
func bubble(t *testing.T, f func(t *testing.T, m *enginetest.Memory, q *durable.Queue), opts ...durable.Option) {
	synctest.Test(t, func(t *testing.T) {
		m := enginetest.NewMemory()
		q, err := durable.Open(t.Context(), m.Open(t), opts...)
		require.NoError(t, err)
		defer q.Close()
		f(t, m, q)
	})
}

// start runs the Queue, and returns what ends it in peace.
func start(t *testing.T, q *durable.Queue) func() {
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	return func() { stop(); require.NoError(t, <-done) }
}

func add(t *testing.T, q *durable.Queue, jobs ...durable.Job) []durable.Ref {
	t.Helper()
	refs, err := q.AddMany(t.Context(), jobs...)
	require.NoError(t, err)
	return refs
}

func TestOnTime(t *testing.T) {
	bubble(t, func(t *testing.T, _ *enginetest.Memory, q *durable.Queue) {
		var mu sync.Mutex
		var late []time.Duration
		q.Handle("a", func(_ context.Context, a *durable.Attempt) error {
			mu.Lock()
			defer mu.Unlock()
			late = append(late, time.Since(a.Due))
			return nil
		})
		stop := start(t, q)
		for _, after := range []time.Duration{-time.Hour, 0, time.Millisecond, 4 * time.Second, time.Hour, 90*time.Minute + 333*time.Microsecond + 1} {
			add(t, q, durable.Job{Kind: "a", After: after})
		}
		time.Sleep(2 * time.Hour)
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, late, 6)
		for _, d := range late {
			require.GreaterOrEqual(t, d, time.Duration(0))
			require.LessOrEqual(t, d, time.Millisecond)
		}
		stop()
		st := q.Stats()
		require.Equal(t, []int64{6, 6, 6, 0, 0}, []int64{st.Added, st.Attempts, st.Done, st.Held, st.Running})
		require.Equal(t, int64(6), st.Lateness.Total())
		require.LessOrEqual(t, st.Lateness.Max, time.Millisecond)
	})
}

// The backoff doubles from a second to an hour, less up to a half.
func TestBackoff(t *testing.T) {
	bubble(t, func(t *testing.T, _ *enginetest.Memory, q *durable.Queue) {
		var at []time.Time
		q.Handle("a", func(context.Context, *durable.Attempt) error {
			at = append(at, time.Now())
			return errors.New("no")
		})
		stop := start(t, q)
		add(t, q, durable.Job{Kind: "a", MaxAttempts: 14})
		time.Sleep(3 * time.Hour)
		stop()
		require.Len(t, at, 14)
		for i := 1; i < len(at); i++ {
			most := min(time.Second<<(i-1), time.Hour)
			require.Greater(t, at[i].Sub(at[i-1]), most/2-time.Millisecond, i)
			require.LessOrEqual(t, at[i].Sub(at[i-1]), most+time.Millisecond, i)
		}
		require.Equal(t, int64(1), q.Stats().Dead)
	})
}

// Close ends handlers by their context, and Run with them.
func TestCloseEndsHandlers(t *testing.T) {
	bubble(t, func(t *testing.T, _ *enginetest.Memory, q *durable.Queue) {
		var cause error
		q.Handle("a", func(ctx context.Context, _ *durable.Attempt) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return nil
		})
		done := make(chan error, 1)
		go func() { done <- q.Run(t.Context()) }()
		add(t, q, durable.Job{Kind: "a"})
		time.Sleep(time.Second)
		require.NoError(t, q.Close())
		require.ErrorIs(t, cause, durable.ErrClosed)
		require.NoError(t, <-done)
		require.ErrorIs(t, q.Run(t.Context()), durable.ErrClosed)
	})
}

var errSilent = errors.New("no answer")

// broken is an engine that fails as it is told to.
type broken struct {
	driver.Engine
	insert, feed error
	finish       atomic.Pointer[error]
	release      atomic.Int64 // how many calls are to fail
	released     atomic.Int64 // how many jobs were handed back
	hang         chan struct{}
}

type brokenWorker struct {
	driver.Worker
	b *broken
}

func (b *broken) Insert(ctx context.Context, recs []driver.Record) ([]durable.Ref, []error) {
	if b.hang != nil {
		<-b.hang
	}
	if b.insert != nil {
		errs := make([]error, len(recs))
		for i := range errs {
			errs[i] = b.insert
		}
		return make([]durable.Ref, len(recs)), errs
	}
	return b.Engine.Insert(ctx, recs)
}

func (b *broken) Work(ctx context.Context, c driver.WorkConfig) (driver.Worker, error) {
	w, err := b.Engine.Work(ctx, c)
	return &brokenWorker{w, b}, err
}

func (w *brokenWorker) Finish(ctx context.Context, outs []driver.Completion) []error {
	err := w.b.finish.Load()
	if err == nil {
		return w.Worker.Finish(ctx, outs)
	}
	errs := make([]error, len(outs))
	for i := range errs {
		errs[i] = *err
	}
	return errs
}

func (w *brokenWorker) Release(ctx context.Context, held []*driver.Delivery, after time.Duration) error {
	if w.b.release.Add(-1) >= 0 {
		return errSilent
	}
	w.b.released.Add(int64(len(held)))
	return w.Worker.Release(ctx, held, after)
}

func (w *brokenWorker) Fetch(ctx context.Context, give func([]*driver.Delivery)) error {
	if err := w.b.feed; err != nil {
		w.b.feed = nil
		return err
	}
	return w.Worker.Fetch(ctx, give)
}

// What the engine says of an Add reaches its caller; one whose answer is not waited for
// is uncertain, and stored all the same.
func TestAddErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broken{Engine: enginetest.NewMemory().Open(t), insert: durable.ErrFull}
		q, err := durable.Open(t.Context(), b)
		require.NoError(t, err)
		defer q.Close()
		refs, err := q.AddMany(t.Context(), durable.Job{Kind: "a"}, durable.Job{Kind: "a"})
		require.ErrorIs(t, err, durable.ErrFull)
		require.ErrorContains(t, err, "job 1")
		require.Equal(t, []durable.Ref{"", ""}, refs)
		ref, err := q.Add(t.Context(), durable.Job{Kind: "a"})
		require.EqualError(t, err, "durable: Add: "+b.insert.Error())
		require.ErrorIs(t, err, durable.ErrFull)
		require.Empty(t, ref)
		refs, err = q.AddMany(t.Context())
		require.NoError(t, err, "there is nothing to store")
		require.Empty(t, refs)

		b.insert, b.hang = nil, make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = q.Add(ctx, durable.Job{Kind: "a"})
		require.ErrorIs(t, err, durable.ErrUncertain)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		close(b.hang)
		synctest.Wait()
		n := 0
		for range q.All(t.Context(), durable.Filter{}) {
			n++
		}
		require.Equal(t, 1, n)
	})
}

// An end that cannot be written down is tried again until it can be; a Fetch that fails is
// begun anew.
func TestEngineRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b := &broken{Engine: enginetest.NewMemory().Open(t), feed: errors.New("no leader")}
		b.finish.Store(&errSilent)
		q, err := durable.Open(t.Context(), b, durable.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		require.NoError(t, err)
		defer q.Close()
		ran := 0
		q.Handle("a", func(context.Context, *durable.Attempt) error { ran++; return nil })
		stop := start(t, q)
		ref := add(t, q, durable.Job{Kind: "a"})[0]
		time.Sleep(time.Minute)
		require.Equal(t, int64(1), q.Stats().Ending)
		b.finish.Store(nil)
		time.Sleep(10 * time.Second)
		_, err = q.Get(t.Context(), ref)
		require.ErrorIs(t, err, durable.ErrNotFound)
		require.Equal(t, 1, ran)
		stop()
		require.Contains(t, log.String(), "no answer")
		require.Contains(t, log.String(), "no leader")
	})
}

// While ends cannot be written down no more jobs begin than there are slots, or 64:
// that is what would run again after a kill.
func TestEndsAreBounded(t *testing.T) {
	for slots, most := range map[int]int64{3: 64, 100: 100} {
		endsAreBounded(t, slots, most)
	}
}

func endsAreBounded(t *testing.T, slots int, most int64) {
	synctest.Test(t, func(t *testing.T) {
		b := &broken{Engine: enginetest.NewMemory().Open(t)}
		b.finish.Store(&errSilent)
		q, err := durable.Open(t.Context(), b, durable.WithConcurrency(slots))
		require.NoError(t, err)
		defer q.Close()
		var ran atomic.Int64
		q.Handle("a", func(context.Context, *durable.Attempt) error { ran.Add(1); return nil })
		stop := start(t, q)
		add(t, q, slices.Repeat([]durable.Job{{Kind: "a"}}, 200)...)
		time.Sleep(10 * time.Second)
		require.Equal(t, most, ran.Load())
		b.finish.Store(nil)
		time.Sleep(10 * time.Second)
		require.Equal(t, int64(200), ran.Load())
		stop()
	})
}

// An engine that does not take an end keeps Run for a lease, not for ever.
func TestDrainGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broken{Engine: enginetest.NewMemory().Open(t)}
		b.finish.Store(&errSilent)
		q, err := durable.Open(t.Context(), b, durable.WithLease(20*time.Second))
		require.NoError(t, err)
		defer q.Close()
		q.Handle("a", func(context.Context, *durable.Attempt) error { return nil })
		stop := start(t, q)
		add(t, q, durable.Job{Kind: "a"})
		time.Sleep(time.Second)
		began := time.Now()
		stop()
		require.InDelta(t, 20, time.Since(began).Seconds(), 1)
	})
}

// An engine that is closed once the context of Run has ended takes no end any more. Run does not wait for it.
func TestDrainOfAClosedEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broken{Engine: enginetest.NewMemory().Open(t)}
		q, err := durable.Open(t.Context(), b, durable.WithLease(time.Hour))
		require.NoError(t, err)
		defer q.Close()
		release := make(chan struct{})
		q.Handle("a", func(context.Context, *durable.Attempt) error { <-release; return nil })
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- q.Run(ctx) }()
		add(t, q, durable.Job{Kind: "a"})
		time.Sleep(time.Second)
		stop()
		time.Sleep(time.Second)
		b.finish.Store(&durable.ErrClosed)
		close(release)
		began := time.Now()
		require.ErrorIs(t, <-ran, durable.ErrClosed)
		require.Less(t, time.Since(began), time.Second)
	})
}

// What has not begun when Run ends is handed back though the engine does not take it at once:
// others get it while a handler of this worker still runs.
func TestDrainHandsBackUntilTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := enginetest.NewMemory()
		b := &broken{Engine: m.Open(t)}
		q, err := durable.Open(t.Context(), b, durable.WithConcurrency(1))
		require.NoError(t, err)
		defer q.Close()
		end := make(chan struct{})
		endIt := sync.OnceFunc(func() { close(end) })
		defer endIt()
		q.Handle("a", func(context.Context, *durable.Attempt) error { <-end; return nil })
		stop := start(t, q)
		add(t, q, durable.Job{Kind: "a"}, durable.Job{Kind: "a"})
		time.Sleep(time.Second)
		require.EqualValues(t, 1, q.Stats().Claimed)
		b.release.Store(3)
		stopped := make(chan struct{})
		go func() { defer close(stopped); stop() }()
		time.Sleep(5 * time.Second)
		other, err := durable.Open(t.Context(), m.Open(t))
		require.NoError(t, err)
		defer other.Close()
		ran := make(chan struct{}, 1)
		other.Handle("a", func(context.Context, *durable.Attempt) error { ran <- struct{}{}; return nil })
		defer start(t, other)()
		time.Sleep(5 * time.Minute)
		require.Len(t, ran, 1)
		endIt()
		<-stopped
	})
}

// What was put off just before Run ends is handed back before the engine's worker is closed,
// and nothing is after it.
func TestDrainHandsBackWhatWasPutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broken{Engine: enginetest.NewMemory().Open(t)}
		q, err := durable.Open(t.Context(), b)
		require.NoError(t, err)
		defer q.Close()
		require.NoError(t, q.SetLimit(t.Context(), "tenant", durable.Limit{Kind: "a", PerLane: true, Running: 1}))
		q.Handle("a", func(context.Context, *durable.Attempt) error { time.Sleep(time.Millisecond); return nil })
		stop := start(t, q)
		const n = 100 // more than a line holds
		add(t, q, slices.Repeat([]durable.Job{{Kind: "a", Lane: "l"}}, n)...)
		synctest.Wait()
		stop()
		require.EqualValues(t, n, b.released.Load()+q.Stats().Done)
		time.Sleep(time.Minute)
		require.EqualValues(t, n, b.released.Load()+q.Stats().Done)
	})
}

func TestWrongUse(t *testing.T) {
	e := enginetest.NewMemory().Open(t)
	panics := func(want string, f func()) {
		t.Helper()
		require.PanicsWithValue(t, want, f)
	}
	ctx := t.Context()
	handler := func(context.Context, *durable.Attempt) error { return nil }
	panics("durable: Open: nil Engine", func() { durable.Open(ctx, nil) })
	panics("durable: Open: nil Option", func() { durable.Open(ctx, e, nil) })
	panics("durable: WithAhead(0s): not positive", func() { durable.Open(ctx, e, durable.WithAhead(0)) })
	panics("durable: WithLease(1ms): less than 100ms", func() { durable.Open(ctx, e, durable.WithLease(time.Millisecond)) })
	panics("durable: WithConcurrency(0): less than 1", func() { durable.Open(ctx, e, durable.WithConcurrency(0)) })
	panics(`durable: WithKindConcurrency("a", 0): less than 1`, func() { durable.Open(ctx, e, durable.WithKindConcurrency("a", 0)) })
	for _, name := range []string{"a.b", "ü", fmt.Sprintf("%064d", 0)} {
		panics(fmt.Sprintf("durable: WithWorkerName(%q): not letters, digits, - and _, of at most 63 bytes", name),
			func() { durable.Open(ctx, e, durable.WithWorkerName(name)) })
	}
	panics("durable: WithRetention(1ms): less than 1s", func() { durable.Open(ctx, e, durable.WithRetention(time.Millisecond)) })
	panics("durable: WithBackoff(nil)", func() { durable.Open(ctx, e, durable.WithBackoff(nil)) })
	panics("durable: WithLogger(nil)", func() { durable.Open(ctx, e, durable.WithLogger(nil)) })
	panics("durable: Discard(nil)", func() { durable.Discard(nil) })
	panics("durable: RetryAfter(1s, nil)", func() { durable.RetryAfter(time.Second, nil) })
	q, err := durable.Open(ctx, e)
	require.NoError(t, err)
	panics("durable: Run: no handler: call Handle first", func() { q.Run(ctx) })
	panics("durable: Handle: empty kind", func() { q.Handle("", handler) })
	panics(`durable: Handle("a"): nil handler`, func() { q.Handle("a", nil) })
	panics(`durable: HandleJSON("a"): nil handler`, func() { durable.HandleJSON[int](q, "a", nil) })
	q.Handle("a", handler)
	panics(`durable: Handle("a"): the kind has a handler already`, func() { q.Handle("a", handler) })
	running, stop := context.WithCancel(ctx)
	done := make(chan error)
	go func() { done <- q.Run(running) }()
	add(t, q, durable.Job{Kind: "a"})
	require.Eventually(t, func() bool { return q.Stats().Done == 1 }, 2*time.Minute, time.Millisecond)
	panics(`durable: Handle("b"): call Handle before Run`, func() { q.Handle("b", handler) })
	panics("durable: Run: another call of Run has not returned", func() { q.Run(ctx) })
	stop()
	require.NoError(t, <-done)
	q.Handle("b", handler) // for another call of Run
	require.NoError(t, q.Close())
}

func ExampleOpen() {
	q, err := durable.Open(context.Background(), enginetest.NewMemory().Open(nil)) // in a program: embedded.Open
	if err != nil {
		panic(err)
	}
	defer q.Close()
	ctx, stop := context.WithCancel(context.Background())
	q.Handle("greet", func(_ context.Context, a *durable.Attempt) error {
		fmt.Printf("%s, attempt %d\n", a.Job.Payload, a.Number)
		stop()
		return nil
	})
	if _, err := q.Add(ctx, durable.Job{Kind: "greet", After: 10 * time.Millisecond, Payload: []byte("hello")}); err != nil {
		panic(err)
	}
	if err := q.Run(ctx); err != nil {
		panic(err)
	}
	// Output: hello, attempt 1
}

// slowKeys is an engine that waits for somebody who has the keys.
type slowKeys struct {
	driver.Engine
	free chan struct{}
}

func (e *slowKeys) Insert(ctx context.Context, recs []driver.Record) ([]durable.Ref, []error) {
	for _, r := range recs {
		if r.Key != "" {
			<-e.free
		}
	}
	return e.Engine.Insert(ctx, recs)
}

// Jobs without a key do not wait with those whose key is waited for, also not those of the
// same call.
func TestKeysHoldUpNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &slowKeys{enginetest.NewMemory().Open(t), make(chan struct{})}
		q, err := durable.Open(t.Context(), e)
		require.NoError(t, err)
		defer q.Close()
		var adds sync.WaitGroup
		for i := range 8 {
			adds.Go(func() { add(t, q, durable.Job{Kind: "a", Key: fmt.Sprint(i)}, durable.Job{Kind: "a"}) })
		}
		synctest.Wait()
		added := make(chan struct{})
		go func() { defer close(added); add(t, q, durable.Job{Kind: "a"}) }()
		synctest.Wait()
		select {
		case <-added:
		default:
			t.Error("it waits for the keys of others")
		}
		require.EqualValues(t, 9, q.Stats().Added)
		close(e.free)
		adds.Wait()
		<-added
		require.EqualValues(t, 17, q.Stats().Added)
	})
}

// nilError is an error whose methods fail for a nil pointer.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

// hostile fails in all of its methods.
type hostile struct{ how func() }

func (e hostile) Error() string { return "text" }
func (e hostile) Unwrap() error { e.how(); return nil }

// rotten panics with a value that panics when it is printed, and so on.
type rotten struct{}

func (r rotten) Error() string  { panic(r) }
func (r rotten) String() string { panic(r) }

// bottomless panics when it is unwrapped, too.
type bottomless struct{ rotten }

func (r *bottomless) Unwrap() error { panic(r.rotten) }

// mute is an error whose text never comes.
type mute struct{}

func (mute) Error() string { runtime.Goexit(); return "" }

// Code of the user's that fails in any way costs the attempt and not the process: the
// error's methods, the backoff, the Scheduler.
func TestUsersCodeFails(t *testing.T) {
	var log bytes.Buffer
	var backoff atomic.Value
	backoff.Store(func() time.Duration { return 0 })
	bubble(t, func(t *testing.T, _ *enginetest.Memory, q *durable.Queue) {
		var result error
		q.Handle("a", func(context.Context, *durable.Attempt) error {
			switch result.(type) {
			case mute, rotten:
				panic(result)
			}
			return result
		})
		stop := start(t, q)
		died := func(err error, want ...string) {
			t.Helper()
			result = err
			ref := add(t, q, durable.Job{Kind: "a", MaxAttempts: 2})[0]
			time.Sleep(time.Minute)
			info, err := q.Get(t.Context(), ref)
			require.NoError(t, err)
			require.Equal(t, durable.Dead, info.State)
			require.Equal(t, 2, info.Attempt)
			for _, w := range want {
				require.Contains(t, info.LastError, w)
			}
		}
		died((*nilError)(nil), "*durable_test.nilError whose methods panic: panic: runtime error", "queue_test.go")
		died(hostile{func() { panic("ouch") }}, "durable_test.hostile whose methods panic: panic: ouch")
		require.Contains(t, log.String(), "whose methods panic: panic: ouch")
		require.NotContains(t, log.String(), "goroutine ", "a stack for each attempt")
		died(hostile{runtime.Goexit}, "text")
		died(mute{}, "Goexit")
		died(rotten{}, "panic: a durable_test.rotten, whose methods panic")
		died(&bottomless{}, "*durable_test.bottomless whose methods panic: panic: a durable_test.rotten")
		for _, err := range []error{(*nilError)(nil), &bottomless{}, (*bottomless)(nil), errors.Join(hostile{func() { panic("ouch") }})} {
			for _, asks := range []error{durable.Discard(err), durable.RetryAfter(time.Hour, err), durable.Snooze(time.Hour)} {
				result = asks
				ref := add(t, q, durable.Job{Kind: "a"})[0]
				time.Sleep(time.Minute)
				info, err := q.Get(t.Context(), ref)
				require.NoError(t, err)
				if strings.Contains(fmt.Sprintf("%T", asks), "discard") {
					require.Equal(t, durable.Dead, info.State, "%T", asks)
				} else {
					require.Equal(t, durable.Waiting, info.State, "%T", asks)
					require.WithinDuration(t, time.Now(), info.Due.Add(-59*time.Minute), time.Second)
					_, err = q.Cancel(t.Context(), ref)
					require.NoError(t, err)
				}
			}
		}
		backoff.Store(func() time.Duration { panic("no backoff") })
		result = errors.New("no")
		ref := add(t, q, durable.Job{Kind: "a"})[0]
		time.Sleep(100 * time.Millisecond)
		info, err := q.Get(t.Context(), ref)
		require.NoError(t, err)
		require.Equal(t, durable.Waiting, info.State)
		require.Contains(t, info.LastError, "no; durable: the backoff function panicked: panic: no backoff")
		require.Greater(t, time.Until(info.Due), 300*time.Millisecond, "by the backoff that is the default")
		backoff.Store(func() time.Duration { runtime.Goexit(); return 0 })
		time.Sleep(time.Minute)
		info, err = q.Get(t.Context(), ref)
		require.NoError(t, err)
		require.Greater(t, info.Attempt, 2)
		require.Equal(t, "no", info.LastError)

		stop()
		require.Equal(t, int64(0), q.Stats().Running)
	}, durable.WithBackoff(func(int) time.Duration { return backoff.Load().(func() time.Duration)() }), durable.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
}

// Run ends with the error of an engine that cannot go on, and takes its handlers along.
// While its errors are others Run goes on.
func TestRunEndsForGood(t *testing.T) {
	for _, verb := range []string{"feed", "beat"} {
		for _, wrapped := range []error{durable.ErrClosed, durable.ErrVersion} {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				s := &sick{Engine: enginetest.NewMemory().Open(t), faults: map[string]error{"feed": errSilent, "beat": errSilent}}
				q, err := durable.Open(t.Context(), s, durable.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				require.NoError(t, err)
				defer q.Close()
				cause := make(chan error, 1)
				q.Handle("a", func(ctx context.Context, _ *durable.Attempt) error {
					<-ctx.Done()
					cause <- context.Cause(ctx)
					return nil
				})
				ran := make(chan error, 1)
				go func() { ran <- q.Run(t.Context()) }()
				time.Sleep(15 * time.Second)
				s.set("feed", nil)
				s.set("beat", nil)
				add(t, q, durable.Job{Kind: "a"})
				time.Sleep(20 * time.Second)
				require.Equal(t, int64(1), q.Stats().Running)
				s.set("finish", durable.ErrClosed)
				s.set("release", durable.ErrClosed)
				s.set(verb, fmt.Errorf("connection gone: %w", wrapped))
				if verb == "feed" {
					s.interrupt()
				}
				time.Sleep(2 * time.Minute)
				require.ErrorIs(t, <-ran, wrapped)
				require.ErrorIs(t, <-cause, wrapped)
				require.NoError(t, q.Close())
			})
		}
	}
}

// Without a logger, what is lost is logged where the program logs.
func TestDefaultLogger(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	var log bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	bubble(t, func(t *testing.T, _ *enginetest.Memory, q *durable.Queue) {
		q.Handle("a", func(context.Context, *durable.Attempt) error { return errors.New("no") })
		stop := start(t, q)
		add(t, q, durable.Job{Kind: "a", MaxAttempts: 1})
		time.Sleep(time.Second)
		stop()
	})
	require.Contains(t, log.String(), "durable: an attempt failed")
}

// An engine has one Queue at a time.
func TestTwoQueuesOnOneEngine(t *testing.T) {
	bubble(t, func(t *testing.T, m *enginetest.Memory, q *durable.Queue) {
		e := m.Open(t)
		first, err := durable.Open(t.Context(), e)
		require.NoError(t, err)
		_, err = durable.Open(t.Context(), e)
		require.ErrorContains(t, err, "the engine has a Queue already")
		require.NoError(t, first.Close())
		_, err = durable.Open(t.Context(), e)
		require.ErrorIs(t, err, durable.ErrClosed, "it has none any more")
	})
}

// Middleware can tell a snooze from a failure.
func TestIsSnooze(t *testing.T) {
	require.True(t, durable.IsSnooze(fmt.Errorf("later: %w", durable.Snooze(time.Second))))
	require.False(t, durable.IsSnooze(errors.New("no")))
	require.False(t, durable.IsSnooze(nil))
}

// replacing is an engine that has a job replaced after it was looked up by its key.
type replacing struct {
	driver.Engine
	replace func()
}

func (e *replacing) Lookup(ctx context.Context, key string) (durable.Ref, error) {
	ref, err := e.Engine.Lookup(ctx, key)
	e.replace()
	return ref, err
}

// CancelKey and Lookup find the job that has replaced another meanwhile.
func TestKeyOfReplaced(t *testing.T) {
	e := &replacing{Engine: enginetest.NewMemory().Open(t)}
	q, err := durable.Open(t.Context(), e)
	require.NoError(t, err)
	defer q.Close()
	var last durable.Ref
	add := func() {
		last, err = q.Add(t.Context(), durable.Job{Kind: "k", Key: "k", OnKey: durable.Replace, After: time.Hour})
		require.NoError(t, err)
	}
	replaceOnce := func() {
		var once sync.Once
		e.replace = func() { once.Do(add) }
	}
	add()
	replaceOnce()
	i, err := q.Lookup(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, last, i.Ref)
	replaceOnce()
	ok, err := q.CancelKey(t.Context(), "k")
	require.NoError(t, err)
	require.True(t, ok)
	ok, err = q.CancelKey(t.Context(), "k")
	require.NoError(t, err)
	require.False(t, ok)
	_, err = q.Lookup(t.Context(), "k")
	require.ErrorIs(t, err, durable.ErrNotFound)
}

// slowInsert is an engine whose Insert waits until it is let go.
type slowInsert struct {
	driver.Engine
	let chan bool
}

func (e *slowInsert) Insert(ctx context.Context, recs []driver.Record) ([]driver.Ref, []error) {
	<-e.let
	return e.Engine.Insert(ctx, recs)
}

// After Add has returned the caller may use its payload for something else, also if Add has given up
// while the job is on its way.
func TestPayloadOfAddThatGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &slowInsert{enginetest.NewMemory().Open(t), make(chan bool)}
		q, err := durable.Open(t.Context(), e)
		require.NoError(t, err)
		defer q.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		payloads := [][]byte{[]byte("first"), []byte("other")}
		_, err = q.AddMany(ctx, durable.Job{Kind: "k", Payload: payloads[0]}, durable.Job{Kind: "k", Key: "k", Payload: payloads[1]})
		require.ErrorIs(t, err, durable.ErrUncertain)
		for _, p := range payloads {
			copy(p, "later")
		}
		close(e.let)
		synctest.Wait()
		n := 0
		for i, err := range q.All(t.Context(), durable.Filter{}) {
			require.NoError(t, err)
			require.NotEqual(t, "later", string(i.Job.Payload))
			n++
		}
		require.Equal(t, 2, n)
	})
}

// Run may be called while Close is under way: with the race detector.
func TestRunBesideClose(t *testing.T) {
	for range 300 {
		q, err := durable.Open(t.Context(), memory.New(memory.NewClock(time.Now())).Open())
		require.NoError(t, err)
		q.Handle("k", func(context.Context, *durable.Attempt) error { return nil })
		done := make(chan error, 1)
		go func() { done <- q.Run(t.Context()) }()
		require.NoError(t, q.Close())
		if err := <-done; err != nil {
			require.ErrorIs(t, err, durable.ErrClosed)
		}
	}
}
