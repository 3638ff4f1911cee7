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
func (c *closer) endedNobodys(ctx context.Context, at spot) (last uint64, err error) {
	if time.Since(c.swept[at]) < sweepEvery {
		return 0, nil
	}
	maps.DeleteFunc(c.swept, func(_ spot, when time.Time) bool { return time.Since(when) > sweepEvery })
	c.swept[at] = time.Now()
	for v, err := range c.versions(ctx, c.queueSubject(at.bucket, at.queue)) {
		if err != nil || !v.s.fate.final() {
			return 0, err
		}
		if err := c.tidy(ctx, &v.r, v.at); err != nil {
			return 0, err
		}
		last = v.seq
	}
	return last, nil
}
