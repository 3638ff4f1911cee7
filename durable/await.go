package durable

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/worker"
)

const (
	awaitFirst   = 50 * time.Millisecond // the first pause, which doubles
	awaitMost    = time.Second           // the longest pause of a job that is due
	awaitFar     = 30 * time.Second      // the longest pause of a job that is not due
	awaitChunk   = 10000                 // the most jobs of one call of Progress
	awaitGets    = 16                    // the most calls of Get at one time
	awaitTimeout = 10 * time.Second      // the bound of one reading
)

// awaits are the calls of Await, by job, and the goroutine that polls for all of them.
//
// Invariant: the goroutine runs, and any is true, if and only if there are jobs. The goroutine ends when the last job
// has ended, or the last call has returned, or with Close. The engine is called without the lock.
type awaits struct {
	*link
	any atomic.Bool // for check, which is called for each job

	mu      sync.Mutex // guards what follows
	shut    bool       // Close has begun
	jobs    map[Ref]*awaited
	hurried []Ref         // to be read now
	wake    chan struct{} // of one element, for the goroutine: hurried is not empty
	next    time.Time     // the earliest next of a job, or earlier
	took    time.Duration // the last reading, for each of its jobs
	stop    context.CancelFunc
	said    worker.Rarely
}

// awaited is a job for which calls of Await wait.
type awaited struct {
	calls int
	next  time.Time     // when it is read again
	pause time.Duration // until then, since the last reading
	ended chan struct{} // closed when the others are set
	asOf  time.Time     // when the reading began
	info  Info
	err   error
}

func newAwaits(l *link) *awaits {
	return &awaits{link: l, jobs: map[Ref]*awaited{}}
}

// result returns the answer, with memory of its own for each call.
func (a *awaited) result() (Info, error) {
	i := a.info
	i.Job.Payload, i.Job.Meta, i.Errors = bytes.Clone(i.Job.Payload), maps.Clone(i.Job.Meta), slices.Clone(i.Errors)
	return i, a.err
}

// await waits until a job has ended, and returns the time as of which it had.
func (w *awaits) await(ctx context.Context, r Ref) (i Info, asOf time.Time, err error) {
	a, err := w.join(r)
	if err != nil {
		return Info{}, asOf, err
	}
	defer w.leave(r, a)
	select {
	case <-a.ended:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-w.closed.Done():
		err = ErrClosed
	}
	select {
	case <-a.ended: // the answer counts, whatever else has happened
		i, err = a.result()
		return i, a.asOf, err
	default:
		return Info{}, asOf, err
	}
}

func (w *awaits) join(r Ref) (*awaited, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shut {
		return nil, ErrClosed
	}
	if w.stop == nil {
		var ctx context.Context
		ctx, w.stop = context.WithCancel(w.closed)
		wake := make(chan struct{}, 1)
		w.wake = wake
		w.any.Store(true)
		w.wg.Go(func() { w.poll(ctx, wake) })
	}
	a := w.jobs[r]
	if a == nil {
		a = &awaited{ended: make(chan struct{}), next: time.Now().Add(awaitTimeout)}
		w.jobs[r] = a
		w.hurry(r)
	}
	a.calls++
	return a, nil
}

func (w *awaits) leave(r Ref, a *awaited) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.calls--; a.calls == 0 && w.jobs[r] == a {
		w.remove(r)
	}
}

// remove removes a job. w.mu is held.
func (w *awaits) remove(r Ref) {
	if delete(w.jobs, r); len(w.jobs) == 0 {
		w.any.Store(false)
		w.stop()
		w.stop, w.hurried, w.next = nil, nil, time.Time{}
	}
}

// close makes later calls of Await return ErrClosed, so that no goroutine begins while Close waits for the others.
func (w *awaits) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shut = true
}

// check reads a job at once if it is awaited: it may have ended, or be due at another time.
func (w *awaits) check(r Ref) {
	if !w.any.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if a := w.jobs[r]; a != nil {
		a.pause = 0
		w.hurry(r)
	}
}

// hurry makes the goroutine read a job at once. w.mu is held.
func (w *awaits) hurry(r Ref) {
	w.hurried = append(w.hurried, r)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// poll reads jobs until ctx ends.
func (w *awaits) poll(ctx context.Context, wake <-chan struct{}) {
	for ctx.Err() == nil {
		refs, next := w.due(ctx)
		for some := range slices.Chunk(refs, awaitChunk) {
			w.read(ctx, some)
		}
		if len(refs) > 0 {
			continue
		}
		t := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
		case <-wake:
		case <-t.C:
		}
		t.Stop()
	}
}

// due returns the jobs to read now, or when there may be some. A job is read a little earlier together with
// others, so that jobs whose calls began at different times are soon read together.
func (w *awaits) due(ctx context.Context) ([]Ref, time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() != nil { // another poll may have begun
		return nil, time.Time{}
	}
	refs, now := w.hurried, time.Now()
	w.hurried = nil
	if !now.Before(w.next) {
		w.next = now.Add(awaitFar)
		for r, a := range w.jobs {
			if a.next.Sub(now) <= a.pause/4 {
				refs = append(refs, r)
			} else if a.next.Before(w.next) {
				w.next = a.next
			}
		}
	}
	slices.Sort(refs)
	return slices.Compact(refs), w.next
}

// read reads how far jobs are, and answers the calls for those that have ended.
func (w *awaits) read(ctx context.Context, refs []Ref) {
	began := time.Now()
	within, cancel := context.WithTimeout(ctx, awaitTimeout)
	defer cancel()
	all, errs := w.engine.Progress(within, refs)
	infos := make([]Info, len(refs))
	w.describe(within, refs, all, infos, errs)
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() != nil {
		return // the jobs are another poll's
	}
	now := time.Now()
	least := w.leastPause(now.Sub(began), len(refs))
	for i, r := range refs {
		a := w.jobs[r]
		switch err := errs[i]; {
		case a == nil:
		case err == nil && !hasEnded(all[i].State):
			w.again(a, all[i], now, least)
		case err == nil || errors.Is(err, ErrNotFound) || worker.ForGood(err):
			a.asOf, a.info, a.err = began, infos[i], err
			close(a.ended)
			w.remove(r)
		default:
			if w.said.Now() {
				w.log.Warn("durable: cannot read whether an awaited job has ended; trying again", "ref", r, "error", err)
			}
			w.again(a, driver.Progress{}, now, awaitMost)
		}
	}
}

// leastPause returns ten times as long as the reading of so many jobs takes: as this one, or as the one before, if that took less
// for each job. So one answer that comes late, as while a server starts again, puts nothing off. w.mu is held.
func (w *awaits) leastPause(took time.Duration, jobs int) time.Duration {
	each := took / time.Duration(jobs)
	usual := min(each, w.took)
	w.took = each
	return min(10*usual*time.Duration(jobs), awaitTimeout)
}

// describe finds how jobs ended that may be kept. A dead one may have been redriven since, and has then not ended.
func (w *awaits) describe(ctx context.Context, refs []Ref, all []driver.Progress, infos []Info, errs []error) {
	var wg sync.WaitGroup
	turns := make(chan struct{}, awaitGets)
	for i, p := range all {
		switch {
		case errs[i] != nil || !hasEnded(p.State):
		case p.State == 0:
			errs[i] = ErrEnded
		default:
			turns <- struct{}{}
			wg.Go(func() {
				defer func() { <-turns }()
				infos[i], errs[i] = w.engine.Get(ctx, refs[i])
				if all[i].State = infos[i].State; errors.Is(errs[i], ErrNotFound) {
					errs[i] = ErrEnded
				}
			})
		}
	}
	wg.Wait()
}

func hasEnded(s driver.State) bool { return s != Waiting && s != Running }

// again sets when a job is read again. w.mu is held.
func (w *awaits) again(a *awaited, p driver.Progress, now time.Time, least time.Duration) {
	if left := p.Due.Sub(w.clock.Time()); p.State == Waiting && left > 0 {
		a.pause = min(max(left, awaitFirst), awaitFar)
	} else {
		a.pause = min(max(2*a.pause, awaitFirst), awaitMost)
	}
	a.pause = max(a.pause, least)
	if a.next = now.Add(a.pause); a.next.Before(w.next) {
		w.next = a.next
	}
}
