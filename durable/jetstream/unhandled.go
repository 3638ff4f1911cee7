package jetstream

import (
	"context"
	"maps"
	"time"
)

// A job that no worker can run is in a queue that has no consumer, and costs nothing while it
// waits. Its bucket is not closed. A look now and then finds those that were canceled meanwhile.

const sweepEvery = 5 * time.Minute

// endedNobodys returns up to where the jobs of a kind have ended that no worker can run, 0
// if one of them waits. It looks once in a while.
func (f *fetcher) endedNobodys(ctx context.Context, at spot) (last uint64, err error) {
	if time.Since(f.swept[at]) < sweepEvery {
		return 0, nil
	}
	maps.DeleteFunc(f.swept, func(_ spot, when time.Time) bool { return time.Since(when) > sweepEvery })
	f.swept[at] = time.Now()
	for v, err := range f.versions(ctx, f.queueSubject(at.bucket, at.queue)) {
		if err != nil || !v.s.fate.final() {
			return 0, err
		}
		if err := f.tidy(ctx, &v.r, v.at); err != nil {
			return 0, err
		}
		last = v.seq
	}
	return last, nil
}

// handled returns the hashes of the kinds that workers can run which live. It returns errBehind if a worker of this process
// is not among them: its heartbeat is late, and those of others may be, or the server that answers was frozen
// and has old ones.
func (e *engine) handled(ctx context.Context, p *part, now time.Time) (map[string]bool, error) {
	lives, heartbeats, err := p.queues.lives(ctx)
	if err != nil {
		return nil, err
	}
	hashes, alive := map[string]bool{}, map[string]bool{}
	for subject, l := range lives {
		if p.serverTime(heartbeats[subject].Time).Add(l.Lease).After(now) {
			alive[subject] = true
			for _, hash := range l.Kinds {
				hashes[hash] = true
			}
		}
	}
	for _, l := range e.notices.all() {
		if !alive[p.workerSubject(l.name)] {
			return nil, errBehind
		}
	}
	return hashes, nil
}
