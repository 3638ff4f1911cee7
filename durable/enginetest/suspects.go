package enginetest

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// A claim whose worker dies counts as an attempt if it was exact, and not if it was not.
// In either case the job is a suspect from then on, and cannot be claimed but exactly;
// when its attempts are used up it dies. Others take over after the lease, not before,
// and with a Close at once.
func deaths(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	ref := r.add(durable.Job{Kind: kind, MaxAttempts: 2})[0]
	var last time.Time // the worker that has the job was alive after that
	for n := 1; n <= 3; n++ {
		e := s.Open(t)
		began := time.Now()
		w := newCrashing(t, e, "dies"+string(rune('0'+n)))
		h, v := w.ask(ref, false)
		if n > 1 {
			require.Equal(t, driver.ClaimResult{Status: driver.Suspect, Crashes: n - 1}, v)
			h, v = w.again(h, true)
		}
		require.Equal(t, driver.ClaimResult{Status: driver.Granted, Attempt: max(1, n-1)}, v)
		if n == 2 {
			require.Greater(t, time.Since(last), lease/2, "taken over too early")
		}
		last = began
		if n == 2 {
			// It is given back, and still a suspect; nor did the attempt begin.
			require.NoError(t, w.Release(within(t), []*driver.Delivery{h}, 0))
			h, v = w.ask(ref, false)
			require.Equal(t, driver.ClaimResult{Status: driver.Suspect, Crashes: 1}, v)
			_, v = w.again(h, true)
			require.Equal(t, driver.ClaimResult{Status: driver.Granted, Attempt: 1}, v)
			require.NoError(t, w.Close(within(t)))
		}
		w.stop()
		require.NoError(t, e.Close())
	}
	info := r.get(ref)
	require.Equal(t, 2, info.Attempt)
	r.handle(kind, nil).start()
	info = r.awaitDead(ref)
	require.Contains(t, info.LastError, "its process died")
	require.Len(t, info.Errors, 1)
	require.Equal(t, 2, info.Errors[0].Attempt)
	require.Equal(t, 2, info.Attempt, "of 2")
	require.Empty(t, r.ran())
}

// An attempt that ends clears its job, whether it is done or tried again.
func cleared(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	ref := r.add(durable.Job{Kind: kind})[0]
	a := newCrashing(t, s.Open(t), "dies")
	a.ask(ref, false)
	require.NoError(t, a.Close(within(t)))
	a.stop()
	b := newCrashing(t, s.Open(t), "fails")
	h, v := b.ask(ref, false)
	require.Equal(t, driver.Suspect, v.Status)
	h, v = b.again(h, true)
	require.Equal(t, driver.ClaimResult{Status: driver.Granted, Attempt: 1}, v)
	require.NoError(t, b.Finish(within(t), []driver.Completion{{Delivery: h, End: driver.Retry, At: time.Now(), Error: "x"}})[0])
	h, v = b.ask(ref, false)
	for h.Record.Attempt == 0 { // it is handed out once more as it was before
		require.NotEqual(t, driver.Granted, v.Status)
		h, v = b.ask(ref, false)
	}
	require.Equal(t, 0, h.Record.Crashes)
	require.Equal(t, 1, h.Record.Attempt)
	require.Equal(t, driver.ClaimResult{Status: driver.Granted, Attempt: 2}, v)
	finishPatiently(t, b, driver.Completion{Delivery: h, End: driver.Done})
	empty(t, r)
}

// A suspect that is moved is one still.
func suspectMoved(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	ref := r.add(durable.Job{Kind: kind})[0]
	a := newCrashing(t, s.Open(t), "dies")
	a.ask(ref, false)
	require.NoError(t, a.Close(within(t)))
	a.stop()
	b := newCrashing(t, s.Open(t), "moves")
	h, _ := b.ask(ref, false)
	h, v := b.again(h, true)
	require.Equal(t, driver.Granted, v.Status)
	require.NoError(t, b.Release(within(t), []*driver.Delivery{h}, 0))
	r.reschedule(ref, time.Now(), true)
	for {
		h, v = b.ask(ref, false)
		if v.Status != driver.Gone { // of before the move
			break
		}
	}
	require.Equal(t, driver.ClaimResult{Status: driver.Suspect, Crashes: 1}, v)
	h, v = b.again(h, true)
	require.Equal(t, driver.ClaimResult{Status: driver.Granted, Attempt: 1}, v)
	finishPatiently(t, b, driver.Completion{Delivery: h, End: driver.Done})
	empty(t, r)
}

// deafWorker is a worker that makes claims, but loses the answers to the first three.
type deafWorker struct {
	driver.Worker
	claims atomic.Int64
}

func (w *deafWorker) Claim(ctx context.Context, held []*driver.Delivery) []driver.ClaimResult {
	results := w.Worker.Claim(ctx, held)
	if w.claims.Add(1) <= 3 {
		return slices.Repeat([]driver.ClaimResult{{Status: driver.RetryLater, After: time.Millisecond}}, len(held))
	}
	return results
}

// A claim whose answer was lost is no attempt: what this worker claims once more it has
// claimed once.
func claimAnswerLost(t *testing.T, s Store) {
	for _, most := range []int{1, 2} { // claimed exactly, and not
		r := open(t, wrapped{s.Open(t), func(w driver.Worker) driver.Worker { return &deafWorker{Worker: w} }}).handle(kind, nil).start()
		ref := r.add(durable.Job{Kind: kind, MaxAttempts: most})[0]
		r.awaitGone(ref)
		runs := r.ran()
		require.Len(t, runs, 1)
		require.Equal(t, 1, runs[0].Number)
		require.Equal(t, int64(0), r.Stats().Dead)
		r.close()
	}
}

// mortal is an engine that dies with its process: its worker's claims never end, and no
// call reaches it any more. Others may take over at once, as after its lease.
type mortal struct {
	driver.Engine
	died chan struct{}
	die  sync.Once

	mu     sync.Mutex
	worker driver.Worker
}

type mortalWorker struct {
	guarded
	e *mortal
}

func newMortal(e driver.Engine) *mortal { return &mortal{Engine: e, died: make(chan struct{})} }

// kill is called by a handler. It returns when nothing reaches the engine any more.
func (e *mortal) kill() {
	e.die.Do(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		close(e.died)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		e.worker.Close(ctx)
	})
}

// alive calls f, unless the process is dead; it cannot die meanwhile.
func (e *mortal) alive(f func() error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-e.died:
		return durable.ErrClosed
	default:
		return f()
	}
}

func (e *mortal) Work(ctx context.Context, c driver.WorkConfig) (driver.Worker, error) {
	w, err := e.Engine.Work(ctx, c)
	e.worker = w
	return mortalWorker{guarded{w, e.alive}, e}, err
}

func (w mortalWorker) Fetch(ctx context.Context, give func([]*driver.Delivery)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-w.e.died:
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := w.Worker.Fetch(ctx, give); err != nil {
		return err
	}
	return w.e.alive(func() error { return nil })
}

// killing is jobs that kill their process each time, among others.
type killing struct {
	innocents   int
	killers     int
	place       int           // of the first killer, in the order of their time; others follow by 50
	length      time.Duration // of an innocent
	after       time.Duration // so long after it has begun a killer kills
	concurrency int
	maxAttempts int
}

// run starts processes until all jobs have ended. No innocent may die, or begin more
// than a few times, and the killers have to be dead soon.
func (k killing) run(t testing.TB, s Store) {
	setUp := open(t, s.Open(t))
	jobs := slices.Repeat([]durable.Job{{Kind: kind, MaxAttempts: k.maxAttempts}}, k.innocents+k.killers)
	for i := range jobs {
		jobs[i].After = time.Duration(i) * time.Millisecond
	}
	for i := range k.killers {
		jobs[(k.place+50*i)%len(jobs)].Kind = "kills"
	}
	setUp.add(jobs...)
	var most, done atomic.Int64 // the highest number of an attempt, and ends
	over := func() bool {
		if done.Load() < int64(k.innocents) {
			return false
		}
		left := 0
		for info, err := range setUp.All(within(t), durable.Filter{}) {
			require.NoError(t, err)
			if info.State == durable.Dead {
				require.Equal(t, "kills", info.Job.Kind)
				require.Equal(t, k.maxAttempts, info.Attempt)
				left++
			}
		}
		return left == k.killers
	}
	kills, limit := 0, k.killers*k.maxAttempts+bits.Len(uint(k.innocents))
	for k.start(t, s, &most, &done, over) {
		kills++
		require.LessOrEqual(t, kills, limit)
	}
	t.Logf("%+v: %d kills, attempts of an innocent: at most %d", k, kills, most.Load())
	require.LessOrEqual(t, most.Load(), int64(min(4, k.maxAttempts)))
	require.Equal(t, int64(k.innocents), done.Load())
}

// start is one process; it returns whether it was killed.
func (k killing) start(t testing.TB, s Store, most, done *atomic.Int64, over func() bool) (killed bool) {
	e := newMortal(s.Open(t))
	r := open(t, e, durable.WithConcurrency(k.concurrency))
	var mu sync.Mutex
	seen := map[durable.Ref]bool{}
	r.handle(kind, func(_ context.Context, a *durable.Attempt) error {
		mu.Lock()
		defer mu.Unlock()
		most.Store(max(most.Load(), int64(a.Number)))
		if seen[a.Ref] {
			return fmt.Errorf("twice in one process")
		}
		seen[a.Ref] = true
		mu.Unlock()
		select {
		case <-time.After(k.length):
		case <-e.died:
		}
		mu.Lock()
		return nil
	}).handle("kills", func(context.Context, *durable.Attempt) error {
		select {
		case <-time.After(k.after):
			e.kill()
		case <-e.died:
		}
		return nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ran := make(chan error, 1)
	go func() { ran <- r.Run(ctx) }()
	before := done.Load()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "no end")
		select {
		case err := <-ran:
			require.ErrorIs(t, err, durable.ErrClosed)
			done.Store(before + r.Stats().Done)
			return true
		default:
		}
		if done.Store(before + r.Stats().Done); over() {
			cancel()
			require.NoError(t, <-ran)
			return false
		}
	}
}

// A job that kills its process dies, and no other with it.
func killer(t *testing.T, s Store) {
	killing{innocents: 60, killers: 1, place: 3, length: 100 * time.Millisecond, after: 20 * time.Millisecond, concurrency: 32, maxAttempts: 3}.run(t, s)
}
