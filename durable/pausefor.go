package durable

import (
	"context"
	"fmt"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/clock"
	"github.com/tickwheel/tickwheel/durable/internal/valid"
	"github.com/tickwheel/tickwheel/durable/internal/worker/attempt"
)

const maxPauseFor = 366 * 24 * time.Hour

// PauseFor is [Queue.Pause] with an end: the jobs go on by themselves d after the call, by the
// engine's clock, at most a second later. After PauseFor has returned no selected job is claimed until
// then, in any process. If the jobs have a pause that ends later, or a Pause without an end, that one stays:
// to end it earlier, call Resume first. A Pause of the same jobs replaces it.
//
// If the engine's clock is set back once, the pause lasts at most twice as long, and a second more.
// [ErrInvalid]: as for Pause; d is not positive, or longer than 366 days; or there would be more than 1000
// pauses with an end. These do not count among the 1000 limits and pauses of [Queue.SetLimit].
func (q *Queue) PauseFor(ctx context.Context, what Pausable, d time.Duration) error {
	err := checkPausable(what)
	if err == nil && (d <= 0 || d > maxPauseFor) {
		err = fmt.Errorf("%w: the duration %v is not positive, or is longer than %v", ErrInvalid, d, maxPauseFor)
	}
	if err == nil {
		now := q.clock.Time()
		_, err = q.pauseUntil(ctx, []driver.Pause{{Pausable: what, Since: now, Until: now.Add(d)}})
	}
	if err != nil {
		return fmt.Errorf("durable: PauseFor(%v): %w", what, err)
	}
	return nil
}

// pauseUntil stores pauses with an end by one change, except those of jobs that have a pause which ends later. It
// returns the pauses that it has stored: all of these, or none if there is an error. A cooldown is such a pause, too.
func (q *Queue) pauseUntil(ctx context.Context, all []driver.Pause) (stored []driver.Pause, err error) {
	err = q.changeFlowControl(ctx, func(t *flowControl, _ int64) error {
		stored = nil
		for _, p := range all {
			if last := valid.Farthest.Add(-time.Microsecond); p.Until.After(last) {
				p.Until = last
			}
			p.Since, p.Until = clock.WholeMicros(p.Since).UTC(), clock.WholeMicros(p.Until).UTC()
			i := t.paused(p.Pausable)
			switch {
			case i < 0:
				t.pauses = append(t.pauses, p)
			case t.pauses[i].Rest(p.Since) >= p.Rest(p.Since):
				continue
			default:
				t.pauses[i] = p
			}
			stored = append(stored, p)
		}
		if stored == nil {
			return errUnchanged
		}
		return nil
	})
	if err != nil {
		stored = nil
	}
	return stored, err
}

// Cooldown wraps an error that a handler returns to pause the jobs like its own for d, as when an API has
// answered 429 with Retry-After. It pauses the jobs of the same kind and lane, or of the kind if the job has no
// lane, in all processes, as [Queue.PauseFor] does. This attempt does not count. Its job is due at once, and so keeps
// its turn. Its error is stored as Info.LastError.
//
// A lane is paused alone, since it is the owner of a job, such as a customer or a host: the jobs of others must
// not wait for the quota of one. If all lanes of the kind share the quota, the handler calls
// PauseFor with the kind, and returns [Snooze](0).
//
// If cooldowns overlap, the latest end counts. The end is rounded up to a tenth of a second, so that
// handlers which return at about the same time store one pause. [Queue.Resume] ends a cooldown, and [Queue.Pause]
// replaces it. If the pause cannot be stored within a lease, or there are 1000 already, that is
// logged, and only this job waits for d. If d is not positive, Cooldown is Snooze(0); if it is longer than
// 366 days, it is 366 days. Cooldown panics on a nil error.
func Cooldown(d time.Duration, err error) error {
	if err == nil {
		panic(fmt.Sprintf("durable: Cooldown(%v, nil)", d))
	}
	return attempt.Cooldown(min(d, maxPauseFor), err)
}
