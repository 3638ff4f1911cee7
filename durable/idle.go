package durable

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// Ran counts the attempts of one call of RunUntilIdle.
type Ran struct {
	Attempts int64 // Attempts that were claimed for a handler to begin.
	Done     int64 // Attempts that ended well.
	Failed   int64 // Attempts that failed and are followed by another.
	Dead     int64 // Jobs that died.
}

// RunUntilIdle is Run that ends by itself, for a process that a clock starts, such as a CronJob
// of Kubernetes, and for tests on a real store. It returns nil when this Queue has claimed no job, and
// no job waits that is due within ahead, by the engine's clock, and that this Queue can run. With an
// ahead of 0 or less only jobs that are due count.
//
// It does not wait for these jobs:
//
//   - jobs of kinds without a handler in this Queue;
//   - paused jobs;
//   - jobs that a limit covers while other workers hold all its permits;
//   - jobs that another worker has claimed, also one that died less than its lease ago.
//
// It waits for each other job that is due within ahead, also for retries, occurrences, and jobs that
// handlers add, and for a job that another worker has fetched and not claimed: that begins there, or
// is handed out again after a lease. So a schedule whose times are closer together than ahead keeps it
// until ctx ends, and a limit with a Rate keeps it until there were tokens for all jobs that are due.
//
// It checks the store when it begins, and then every 50 ms, or after ten times as long as a check
// takes, 5 s at most. It returns after two checks in a row that found nothing. While an attempt of
// this Queue runs, a check reads nothing. Otherwise it reads the due jobs of each kind with a handler,
// up to the first one that it can run. On a cluster of NATS a job may be left out that was added in the last moment
// before the return.
//
// If ctx ends before, or the Queue is closed, RunUntilIdle returns the cause. Its other errors,
// and its panics, are those of [Queue.Run], for which it counts as a call. A memory.Clock must be
// moved by others: with one, call it with an ahead of 0.
func (q *Queue) RunUntilIdle(ctx context.Context, ahead time.Duration) (Ran, error) {
	q.mu.Lock()
	w := idleWatch{q: q, ahead: max(0, ahead)}
	for kind := range q.handlers {
		w.kinds = append(w.kinds, kind)
	}
	q.mu.Unlock()
	slices.Sort(w.kinds)

	before, leftOut := q.Stats(), q.counters.LeftOut.Load()
	run, stop := context.WithCancel(ctx)
	defer stop()
	var watch sync.WaitGroup
	idle := false
	watch.Go(func() {
		idle = w.await(run)
		stop()
	})
	err := q.Run(run)
	stop()
	watch.Wait()
	if err == nil && !idle {
		if err = context.Cause(ctx); err == nil {
			err = ErrClosed
		}
	}
	after := q.Stats()
	return Ran{
		Attempts: after.Attempts - before.Attempts, Done: after.Done - before.Done,
		Failed: after.Failed - before.Failed, Dead: after.Dead - before.Dead + after.Expired - before.Expired - (q.counters.LeftOut.Load() - leftOut),
	}, err
}

const (
	idleEvery = 50 * time.Millisecond
	idleMost  = 5 * time.Second // or one check that waits for a server would put the next off for long
	idlePage  = 100

	// idlePast is how far after its due time a listing may have a job.
	idlePast = time.Minute
)

// idleWatch finds the jobs that a Queue has to run.
type idleWatch struct {
	q     *Queue
	kinds []string
	ahead time.Duration
}

// await returns true when there is nothing to run, and false when ctx ends. An engine that does not
// answer is asked again; Run logs that.
func (w *idleWatch) await(ctx context.Context) bool {
	for found := 0; ; {
		began := time.Now()
		if idle, err := w.check(ctx); err != nil || !idle {
			found = 0
		} else if found++; found == 2 {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-w.q.closed.Done():
			return false
		case <-time.After(min(max(idleEvery, 10*time.Since(began)), idleMost)):
		}
	}
}

// check reports whether nothing is to be run. It is no snapshot, and yet finds a job that changes
// meanwhile. Either an attempt of it runs at first; or it waits when the waiting jobs are read; or the Queue
// has claimed it when the running jobs are read; or an attempt has begun between.
func (w *idleWatch) check(ctx context.Context) (bool, error) {
	q := w.q
	before := q.Stats()
	if before.Claimed+before.Running+before.Ending > 0 {
		return false, nil
	}
	flow, err := q.engine.FlowControl(ctx)
	if err != nil {
		return false, err
	}
	usage, err := q.engine.Usage(ctx)
	if err != nil {
		return false, err
	}
	until := q.clock.Time().Add(w.ahead)
	gate := flowGate{flow, until, countersOf(usage)}
	for _, kind := range w.kinds {
		if waits, err := w.waits(ctx, kind, until, &gate); err != nil || waits {
			return false, err
		}
	}
	for _, kind := range w.kinds {
		if claimed, err := w.claimed(ctx, kind); err != nil || claimed {
			return false, err
		}
	}
	return q.Stats().Attempts == before.Attempts, nil
}

// waits reports whether a job of a kind waits that can be run in time.
func (w *idleWatch) waits(ctx context.Context, kind string, until time.Time, gate *flowGate) (bool, error) {
	if gate.shut(kind, "") { // by what covers all lanes
		return false, nil
	}
	return w.any(ctx, Filter{State: Waiting, Kind: kind}, until.Add(idlePast), func(infos []Info) bool {
		return slices.ContainsFunc(infos, func(i Info) bool { return !i.Due.After(until) && !gate.shut(kind, i.Job.Lane) })
	})
}

// claimed reports whether the Queue has claimed a job of a kind.
func (w *idleWatch) claimed(ctx context.Context, kind string) (bool, error) {
	return w.any(ctx, Filter{State: Running, Kind: kind}, time.Time{}, func(infos []Info) bool {
		refs := make([]Ref, len(infos))
		for i, info := range infos {
			refs[i] = info.Ref
		}
		return slices.Contains(w.q.running.Load().Holds(refs), true)
	})
}

// any reports whether f holds for a page of jobs, up to a time if that is not zero.
func (w *idleWatch) any(ctx context.Context, f Filter, until time.Time, holds func([]Info) bool) (bool, error) {
	for after := (driver.Cursor{}); ; {
		infos, next, err := w.q.engine.Page(ctx, f, after, idlePage)
		switch {
		case err != nil || holds(infos):
			return err == nil, err
		case next.IsZero() || !until.IsZero() && next.At.After(until):
			return false, nil
		}
		after = next
	}
}

// flowGate is the limits and pauses, with the counts of the limits.
type flowGate struct {
	flow     *driver.FlowControl
	until    time.Time // a pause that has ended by then shuts nothing
	counters map[driver.LimitKey]driver.Counter
}

// shut reports whether a pause, or a limit whose permits are taken, lets no job of a kind and lane
// begin. The permits are those of others, since nothing of this Queue runs.
func (g *flowGate) shut(kind, lane string) bool {
	limits, paused := g.flow.Covering(kind, lane, g.until)
	return paused > 0 || slices.ContainsFunc(limits, func(l *driver.StoredLimit) bool {
		return l.Running > 0 && g.counters[l.Key(lane)].Taken >= l.Running
	})
}
