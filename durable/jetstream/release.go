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
type releases struct {
	*heart
	notices *notices

	mu       sync.Mutex
	deferred []deferred
}

// freeAll gives back those that are claimed. It looks for a claim that is not known to be
// written: most were refused, and the permits that they name are others'.
func (rl *releases) freeAll(ctx context.Context, p *part, handles []*handle) error {
	var known, unknown []*handle
	for _, hd := range handles {
		switch {
		case hd.status.fate != claimed:
		case hd.status.seq == 0, hd.of != p.Backs():
			unknown = append(unknown, hd)
		default:
			known = append(known, hd)
		}
	}
	var errs []error
	for k, res := range rl.free(ctx, p, known) {
		if errors.Is(res.Err, stream.ErrConflict) {
			unknown = append(unknown, known[k])
			continue
		}
		errs = append(errs, res.Err)
	}
	var mu sync.Mutex
	inParallel(unknown, func(hd *handle) {
		err := rl.freeOwn(ctx, p, hd)
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
	})
	return errors.Join(errs...)
}

// free gives claims back, with their permits. A job that has left its key takes it again, if no
// other has it by now: it has not begun.
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
// lost. Claims of others are not touched, and of the same worker those of another handle.
func (rl *releases) freeOwn(ctx context.Context, p *part, hd *handle) error {
	return p.change(ctx, "a claim", func(error) (bool, error) {
		s, err := p.status(ctx, hd.at)
		if call, _, _ := strings.Cut(s.token, "."); err != nil || s.fate != claimed || s.worker != rl.c.Name || s.token != hd.token(call) {
			return true, err // or another one has taken it over, or has it freed, in between
		}
		hd.status = s
		res := rl.free(ctx, p, []*handle{hd})[0]
		return res.Err == nil, res.Err
	})
}

// freeGroup replaces a claim, and leaves its permits. One that its worker cannot end any more
// makes the job a suspect.
func (b *buckets) freeGroup(at location, s status, dead bool) stream.Group {
	free := status{fate: freed, token: rand.Text(), attempt: s.attempt - 1, crashes: s.crashes}
	if dead {
		free.attempt, free.crashes = s.begun()
	}
	return append(stream.Group{{Subject: b.fateSubject(at), Data: free.encode(), Last: stream.Seq(s.seq)}}, b.leave(s)...)
}

// takeBack removes a claim of what has ended before. One that has permits leaves them first, in
// one commit with the claim; if others have removed that meanwhile, sweepPermits finds the permits.
func (rl *releases) takeBack(ctx context.Context, p *part, hd *handle) error {
	upTo := hd.status.seq
	if len(hd.status.permits) > 0 {
		g := []stream.Group{hd.p.freeGroup(hd.at, hd.status, false)}
		res := hd.p.Commit(ctx, g)
		rl.notices.freed(p.quotas, g, res, func(int) string { return hd.record.Lane })
		if errors.Is(res[0].Err, stream.ErrConflict) {
			return nil
		}
		if res[0].Err != nil {
			return res[0].Err
		}
		upTo = res[0].First
	}
	return hd.p.Purge(ctx, hd.p.fateSubject(hd.at), upTo)
}

// gone forgets a job that has ended. If it was canceled nobody has told its key, or taken
// its forward away.
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

type deferred struct {
	hd    *handle
	until time.Time
}

// keepDeferred remembers deferred jobs.
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
	if n := len(rl.deferred); n > maxDeferred/2 { // so that it is not looked through each time
		rl.deferred = slices.Clone(rl.deferred[n-maxDeferred/2:])
	}
}

// recall has all of that handed out again that did not come yet.
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
