package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// maxTries bounds how often a change is tried anew because others update the same meanwhile.
const maxTries = 100

// retry calls try until it has written, is done, or fails. A try reads what it is based on, and
// writes on the condition that this is as it was read. It is tried anew after a conflict, and
// when the answer to a write was lost: lost is that error then, and the try finds out whether it
// was written. If a later try fails, the lost answer is the error, since its outcome is unknown.
//
// Between two tries after a conflict it reads the watermark and the clock: a bucket that was closed
// is a conflict, too, and the next try stores its version in another. There is no pause but these
// two questions. A try holds no lock.
func (b *buckets) retry(ctx context.Context, what string, try func(lost error) (done bool, err error)) error {
	var lost error
	for range maxTries {
		done, err := try(lost)
		switch {
		case done || err == nil:
			return err
		case errors.Is(err, stream.ErrConflict), errors.Is(err, stream.ErrBusy):
			if err := b.sync(ctx); err != nil {
				return cmp.Or(lost, err)
			}
		case stream.IsLost(err) && ctx.Err() == nil && b.Conn.Ended.Err() == nil:
			lost = err
		default:
			return cmp.Or(lost, err)
		}
	}
	return cmp.Or(lost, fmt.Errorf("%w: gave up after %d conflicting updates of %s", driver.ErrUncertain, maxTries, what))
}
