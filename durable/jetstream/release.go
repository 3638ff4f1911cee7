package jetstream

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// A job that a worker has put off because a limit is far behind, or something is paused, may be due
// at once by other limits and pauses. The server waits for as long as it was told. So the worker keeps
// the jobs that it has deferred, and requests them again when limits or pauses change.

// releases gives claims back, and remembers the jobs that the worker has deferred. Mu guards these.
// It touches no claim of another worker, nor of another handle.
//
// A claim is given back by a status that anyone may replace, and never by removing its own: the status
// says how many attempts and crashes there were, and a version without one has had none.
type releases struct {
	*heart
	notices *notices

	mu       sync.Mutex
	deferred []deferred
}

// freeAll gives back those that are claimed. It looks for a claim that is not known to be
// written: most were refused, and the permits that they name are others'.
//
// Those that are known share a commit. Each of the others costs a read at least, maxReads at a time:
// they are few, since the answer to a claim is seldom lost. One that is refused is among them too: a
// comparison or another worker may have freed it, or a stream that went back has it no more.
func (rl *releases) freeAll(ctx context.Context, p *part, handles []*handle) error {
	errs := make([]error, len(handles))
	var known, unknown []int
	for i, hd := range handles {
		switch {
		case hd.status.fate != claimed:
		case hd.status.seq == 0, hd.of != p.Backs():
			unknown = append(unknown, i)
		default:
			known = append(known, i)
		}
	}
	for k, res := range rl.free(ctx, p, pick(handles, known)) {
		if i := known[k]; errors.Is(res.Err, stream.ErrConflict) {
			unknown = append(unknown, i)
		} else {
			errs[i] = res.Err
		}
	}
	inParallel(unknown, func(i int) { errs[i] = rl.freeOwn(ctx, p, handles[i]) })
	return errors.Join(errs...)
}

// free gives claims back, with their permits. A job that has left its key takes it again, if no
// other has it by now: it has not begun. One whose key cannot be read stays claimed, with the error,
// and the rest is committed. Workers that wait for a permit hear of it in one notice for all.
func (rl *releases) free(ctx context.Context, p *part, handles []*handle) []stream.Result {
	results, groups := make([]stream.Result, len(handles)), make([]stream.Group, len(handles))
	var of []int // which claim a group is of
	for i, hd := range handles {
		g := p.freeGroup(hd.at, hd.status, false)
		if hd.record.FreeWhenBegun {
			key, superseded, err := p.retakeKey(ctx, hd.record)
			if err != nil {
				results[i].Err = err
				continue
			}
			if !superseded {
				g = append(g, key...)
			}
		}
		groups[i], of = g, append(of, i)
	}
	for k, res := range p.Commit(ctx, pick(groups, of)) {
		results[of[k]] = res
	}
	rl.notices.freed(p.quotas, groups, results, func(i int) string { return handles[i].record.Lane })
	return results
}

// freeOwn gives back a claim whose sequence is not known, if it was written and the answer was
// lost. Claims of others are not touched, and of the same worker those of another handle. If there is
// no such claim it is done. One whose write is still on its way is unknown when it comes, and is freed
// when this worker is handed the job again (disown).
func (rl *releases) freeOwn(ctx context.Context, p *part, hd *handle) error {
	return p.retry(ctx, "a claim", func(error) (bool, error) {
		s, err := p.status(ctx, hd.at)
		if call, _, _ := strings.Cut(s.token, "."); err != nil || s.fate != claimed || s.worker != rl.c.Name || s.token != hd.token(call) {
			return true, err // or another one has taken it over, or has it freed, in between
		}
		hd.status = s
		res := rl.free(ctx, p, []*handle{hd})[0]
		return res.Err == nil, res.Err
	})
}

// freeGroup replaces a claim, and leaves its permits. One that its worker cannot end any more makes
// the job a suspect: it counts as a crash, and as an attempt if the claim was exact. One that its
// own worker gives back has not begun, and counts for nothing. Its condition is the claim's
// sequence, so an end, a takeover or a second free of the same claim makes it a conflict.
func (b *buckets) freeGroup(at location, s status, dead bool) stream.Group {
	free := status{fate: freed, token: rand.Text(), attempt: s.attempt - 1, crashes: s.crashes}
	if dead {
		free.attempt, free.crashes = s.begun()
	}
	return append(stream.Group{{Subject: b.statusSubject(at), Data: free.encode(), Last: stream.Seq(s.seq)}}, b.leave(s)...)
}

// takeBack removes a claim of what has ended before. One that has permits leaves them first, in
// one commit with the claim; if others have removed that meanwhile, sweepPermits finds the permits.
// Here the status does go: the bucket is closed, and nobody would remove what is left in it.
func (rl *releases) takeBack(ctx context.Context, p *part, hd *handle) error {
	upTo, backs := hd.status.seq, hd.of
	if len(hd.status.permits) > 0 {
		backs = p.Backs()
		g := []stream.Group{p.freeGroup(hd.at, hd.status, false)}
		res := p.Commit(ctx, g)
		rl.notices.freed(p.quotas, g, res, func(int) string { return hd.record.Lane })
		if errors.Is(res[0].Err, stream.ErrConflict) {
			return nil
		}
		if res[0].Err != nil {
			return res[0].Err
		}
		upTo = res[0].First
	}
	return p.Purge(ctx, backs, p.statusSubject(hd.at), upTo)
}

// gone forgets a job that has ended. If it was canceled its key and its forward are there still: a
// cancel writes only the status, and the worker that is handed the job removes the rest. If that
// fails the job is not acknowledged, and its claim is tried again.
func (rl *releases) gone(ctx context.Context, p *part, h *driver.Delivery) driver.ClaimResult {
	hd := h.Claim.(*handle)
	if err := p.tidy(ctx, &h.Record, hd.at); err != nil {
		return driver.ClaimResult{Status: driver.RetryLater, After: time.Second}
	}
	hd.ack()
	return driver.ClaimResult{Status: driver.Gone}
}

// maxDeferred bounds the deferred jobs that a worker remembers. Beyond that, the oldest keep their
// original delay.
const maxDeferred = 1 << 15

// deferred is a job that was given back with a delay, and when that ends by this machine's clock.
type deferred struct {
	hd    *handle
	until time.Time
}

// keepDeferred remembers deferred jobs. Each keeps its handle, and so the job's message, in memory. It
// looks for those whose time has come only when there are too many, and then leaves half, so that many
// jobs that are deferred one by one cost a constant time each.
func (rl *releases) keepDeferred(some []*handle, after time.Duration) {
	rl.mu.Lock()
	defer rl.mu.Unlock()
	now := time.Now()
	for _, hd := range some {
		rl.deferred = append(rl.deferred, deferred{hd, now.Add(after)})
	}
	if len(rl.deferred) <= maxDeferred {
		return
	}
	rl.deferred = slices.DeleteFunc(rl.deferred, func(o deferred) bool { return o.until.Before(now) })
	if n := len(rl.deferred); n > maxDeferred/2 {
		rl.deferred = slices.Clone(rl.deferred[n-maxDeferred/2:])
	}
}

// recall requests the deferred jobs that did not come yet: the server hands them out at once, to
// any worker. Those that are past their time came by themselves. It awaits no answer: a job whose
// request is lost comes when it would have.
func (rl *releases) recall() {
	rl.mu.Lock()
	all := rl.deferred
	rl.deferred = nil
	rl.mu.Unlock()
	now := time.Now()
	for _, o := range all {
		if o.until.After(now) {
			o.hd.nak(0)
		}
	}
}
