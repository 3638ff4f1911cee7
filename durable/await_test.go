package durable_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/memory"
)

// asked is an engine that counts the requests of Await, and fails them while failing.
type asked struct {
	driver.Engine
	progress, jobs, gets atomic.Int64
	slow, slowGet        atomic.Int64 // the nanoseconds that the next answer takes
	failing              atomic.Bool
}

var errUnheard = errors.New("no answer")

func (e *asked) Progress(ctx context.Context, refs []driver.Ref) ([]driver.Progress, []error) {
	e.progress.Add(1)
	e.jobs.Add(int64(len(refs)))
	time.Sleep(time.Duration(e.slow.Swap(0)))
	all, errs := e.Engine.Progress(ctx, refs)
	for i := range errs {
		if e.failing.Load() {
			errs[i] = errUnheard
		}
	}
	return all, errs
}

func (e *asked) Get(ctx context.Context, r driver.Ref) (driver.Info, error) {
	e.gets.Add(1)
	defer func() { time.Sleep(time.Duration(e.slowGet.Swap(0))) }()
	return e.Engine.Get(ctx, r)
}

// since returns the requests since the last call.
func (e *asked) since() (progress, jobs int64) { return e.progress.Swap(0), e.jobs.Swap(0) }

// waiters is calls of Await that are under way.
type waiters struct {
	sync.WaitGroup
	ended, canceled, others atomic.Int64
}

func (w *waiters) await(ctx context.Context, q *durable.Queue, r durable.Ref) {
	w.Go(func() {
		switch _, err := q.Await(ctx, r); {
		case errors.Is(err, durable.ErrEnded):
			w.ended.Add(1)
		case errors.Is(err, context.Canceled):
			w.canceled.Add(1)
		default:
			w.others.Add(1)
		}
	})
}

// twoQueues returns a Queue that runs jobs, and another one whose requests are counted.
func twoQueues(t *testing.T, log *bytes.Buffer) (runs, other *durable.Queue, e *asked) {
	m := memory.New(nil)
	e = &asked{Engine: m.Open()}
	runs, err := durable.Open(t.Context(), m.Open())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, runs.Close()) })
	other, err = durable.Open(t.Context(), e, durable.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close()) })
	runs.Handle("k", func(context.Context, *durable.Attempt) error { return nil })
	runs.Handle("slow", func(ctx context.Context, _ *durable.Attempt) error {
		select {
		case <-ctx.Done():
		case <-time.After(time.Hour):
		}
		return nil
	})
	go runs.Run(t.Context())
	return runs, other, e
}

// 10,000 calls of Await that began at different times cost few requests, and almost none before their jobs are due.
// When the last one has returned, nothing is left of them.
func TestAwaitSharesPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10000
		q, other, e := twoQueues(t, &bytes.Buffer{})
		due := time.Now().Add(12 * time.Minute)
		jobs := make([]durable.Job, n)
		for i := range jobs {
			jobs[i] = durable.Job{Kind: "k", At: due}
		}
		jobs[n-1].Kind = "slow"
		refs, err := q.AddMany(t.Context(), jobs...)
		require.NoError(t, err)
		var w waiters
		ctx, cancel := context.WithCancel(t.Context())
		for i, r := range refs {
			w.await(ctx, other, r)
			if i%20 == 0 {
				time.Sleep(20 * time.Millisecond)
			}
		}
		for range 1000 {
			w.await(ctx, other, refs[n-1])
		}
		time.Sleep(time.Minute) // the calls of ten seconds come together
		e.since()
		time.Sleep(10 * time.Minute)
		polls, read := e.since()
		require.LessOrEqual(t, polls, int64(4*20), "every 30 s, at most four groups")
		require.LessOrEqual(t, read, int64(n*27), "each job every 30 s, or a little earlier")
		require.Zero(t, w.ended.Load()+w.canceled.Load()+w.others.Load())

		time.Sleep(time.Until(due.Add(5 * time.Second)))
		require.EqualValues(t, n-1, w.ended.Load())
		e.since()
		time.Sleep(time.Minute)
		polls, read = e.since()
		require.InDelta(t, 60, polls, 25, "the one that runs, once a second for 1001 calls")
		require.Equal(t, polls, read)
		require.Zero(t, e.gets.Load(), "none was kept")
		require.Zero(t, w.canceled.Load()+w.others.Load())

		cancel()
		w.Wait()
		synctest.Wait()
		require.EqualValues(t, 1001, w.canceled.Load())
		stacks := make([]byte, 1<<20)
		require.False(t, bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("awaits")), "a goroutine is left")
		e.since()
		time.Sleep(time.Minute)
		polls, _ = e.since()
		require.Zero(t, polls, "nobody awaits anything")
	})
}

// A job of a year ahead is read every 30 s, so that what another process does to it is seen by then; what this
// process does, at once.
func TestAwaitFarAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, other, e := twoQueues(t, &bytes.Buffer{})
		after := func(change func(durable.Ref)) time.Duration {
			ref, err := q.Add(t.Context(), durable.Job{Kind: "k", After: 365 * 24 * time.Hour, Key: "a"})
			require.NoError(t, err)
			var changed time.Time
			returned := make(chan struct{})
			time.AfterFunc(10*time.Minute, func() {
				defer close(returned)
				changed = time.Now()
				change(ref)
			})
			e.since()
			_, err = other.Await(t.Context(), ref)
			took := time.Since(changed)
			<-returned
			require.ErrorIs(t, err, durable.ErrEnded)
			polls, _ := e.since()
			require.Less(t, polls, int64(2*10+20))
			return took
		}
		yes := func(ok bool, err error) {
			require.NoError(t, err)
			require.True(t, ok)
		}
		add := func(q *durable.Queue) {
			next, err := q.Add(t.Context(), durable.Job{Kind: "k", Key: "a", OnKey: durable.Replace, After: time.Hour})
			require.NoError(t, err)
			yes(q.Cancel(t.Context(), next))
		}
		const far = 31 * time.Second
		require.Less(t, after(func(r durable.Ref) { yes(q.Cancel(t.Context(), r)) }), far)
		require.Less(t, after(func(r durable.Ref) { yes(q.Reschedule(t.Context(), r, time.Now())) }), far)
		require.Less(t, after(func(durable.Ref) { add(q) }), far)
		require.Less(t, after(func(r durable.Ref) { yes(other.Cancel(t.Context(), r)) }), 10*time.Millisecond)
		require.Less(t, after(func(r durable.Ref) { yes(other.Reschedule(t.Context(), r, time.Now())) }), 2*time.Second)
		require.Less(t, after(func(durable.Ref) { add(other) }), 10*time.Millisecond)
	})
}

// The Queue that runs a job tells at once of its end. Another one tells within about a second.
func TestAwaitTellsSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, other, _ := twoQueues(t, &bytes.Buffer{})
		ref, err := q.Add(t.Context(), durable.Job{Kind: "slow"})
		require.NoError(t, err)
		began := time.Now()
		var took [2]time.Duration
		var wg sync.WaitGroup
		for i, q := range []*durable.Queue{q, other} {
			wg.Go(func() {
				_, err := q.Await(t.Context(), ref)
				took[i] = time.Since(began)
				require.ErrorIs(t, err, durable.ErrEnded)
			})
		}
		wg.Wait()
		require.Less(t, took[0], time.Hour+200*time.Millisecond, "the end is stored 50 ms after the handler returned")
		require.Less(t, took[1], time.Hour+1500*time.Millisecond)
	})
}

// A slow answer, such as one of a server that starts again, does not delay the next reading.
func TestAwaitAfterASlowAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, at := range []time.Duration{0, time.Hour - 10*time.Second} {
			q, other, e := twoQueues(t, &bytes.Buffer{})
			ref, err := q.Add(t.Context(), durable.Job{Kind: "slow"})
			require.NoError(t, err)
			began := time.Now()
			slow := func() { e.slow.Store(int64(9 * time.Second)) }
			if at == 0 {
				slow()
			}
			time.AfterFunc(at, slow)
			_, err = other.Await(t.Context(), ref)
			require.ErrorIs(t, err, durable.ErrEnded)
			require.Less(t, time.Since(began), time.Hour+2500*time.Millisecond)
		}
	})
}

// While the engine does not answer, Await waits. It says so now and then.
func TestAwaitWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		q, other, e := twoQueues(t, &log)
		e.failing.Store(true)
		time.AfterFunc(15*time.Second, func() { e.failing.Store(false) })
		ref, err := q.Add(t.Context(), durable.Job{Kind: "k"})
		require.NoError(t, err)
		_, err = other.Await(t.Context(), ref)
		require.ErrorIs(t, err, durable.ErrEnded)
		require.Equal(t, 2, bytes.Count(log.Bytes(), []byte(errUnheard.Error())), "%s", &log)
		polls, _ := e.since()
		require.Less(t, polls, int64(20))
	})
}

// Close ends all calls, also with an engine that never answers, and each caller has an Info of its own.
func TestAwaitClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, q, e := twoQueues(t, &bytes.Buffer{})
		q.Handle("dies", func(context.Context, *durable.Attempt) error { return durable.Discard(errUnheard) })
		ref, err := q.Add(t.Context(), durable.Job{Kind: "dies", Payload: []byte("x")})
		require.NoError(t, err)
		go q.Run(t.Context())
		for range 2 {
			info, err := q.Await(t.Context(), ref)
			require.NoError(t, err)
			require.Equal(t, "dead x", fmt.Sprintf("%v %s", info.State, info.Job.Payload))
			info.Job.Payload[0] = 'y'
		}
		e.failing.Store(true)
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				_, err := q.Await(t.Context(), ref)
				require.ErrorIs(t, err, durable.ErrClosed)
			})
		}
		time.Sleep(time.Second)
		require.NoError(t, q.Close())
		wg.Wait()
		_, err = q.Await(t.Context(), ref)
		require.ErrorIs(t, err, durable.ErrClosed)
	})
}

// Calls come and go while jobs end; none is left without an answer. It is of use with the race detector.
func TestAwaitComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, other, _ := twoQueues(t, &bytes.Buffer{})
		var w waiters
		for i := range 300 {
			ref, err := q.Add(t.Context(), durable.Job{Kind: "k", After: time.Duration(i%7) * 20 * time.Millisecond})
			require.NoError(t, err)
			for k, q := range []*durable.Queue{q, other} {
				ctx, cancel := context.WithCancel(t.Context())
				if (i+k)%3 == 0 {
					time.AfterFunc(time.Duration(i%11)*10*time.Millisecond, cancel)
				}
				defer cancel()
				w.await(ctx, q, ref)
			}
			time.Sleep(time.Duration(i%5) * 30 * time.Millisecond)
		}
		w.Wait()
		require.Zero(t, w.others.Load())
		require.EqualValues(t, 600, w.ended.Load()+w.canceled.Load())
		require.GreaterOrEqual(t, w.ended.Load(), int64(400))
	})
}

// A call of Await that joins another's does not end by a reading that began before a Redrive.
func TestAwaitAfterRedrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &asked{Engine: memory.New(nil).Open()}
		q, err := durable.Open(t.Context(), e, durable.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		defer q.Close()
		tries := 0
		q.Handle("k", func(context.Context, *durable.Attempt) error {
			if tries++; tries == 1 {
				return durable.Discard(errUnheard)
			}
			time.Sleep(time.Minute)
			return nil
		})
		go q.Run(t.Context())
		ref, err := q.Add(t.Context(), durable.Job{Kind: "k", Retain: time.Hour})
		require.NoError(t, err)
		time.Sleep(time.Second)
		e.slowGet.Store(int64(time.Second))
		go q.Await(t.Context(), ref)
		time.Sleep(500 * time.Millisecond)
		require.NoError(t, q.Redrive(t.Context(), ref))
		info, err := q.Await(t.Context(), ref)
		require.NoError(t, err)
		require.Equal(t, durable.Done, info.State)
	})
}
