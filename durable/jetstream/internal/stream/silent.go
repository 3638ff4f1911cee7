package stream

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// A server that is frozen or cut off is silent. The others find that out after half a minute or
// more. Until then they pass on to it the questions that any server may answer, it has consumers,
// and clients are connected to it. So
//
//   - a question that any server may answer is asked again beside the earlier ones (soonest);
//   - a consumer whose server is silent is replaced (abandon);
//   - an answer of a leader that was deposed is not waited for (client.deposed);
//   - a connection without an answer is checked and made anew (conn.probe).
//
// A write is never sent to another server beside the first: only the leader can store it.

const (
	SilentAfter = time.Second            // a question to one certain server is not waited for any longer
	askAgain    = 100 * time.Millisecond // without an answer: then the question is asked again
	maxAsked    = 8                      // times is a question asked
)

// soonest returns the first answer to a question that one of several servers answers, which the
// cluster chooses by chance. It asks again when it has heard nothing for askAgain. Then the earlier
// questions still count: a server may be slow. A question that was asked 8 times has been to silent
// servers only in one of 6,000 cases, if one of three is silent.
func soonest[T any](ctx context.Context, replicas int, ask func(ctx context.Context, heard *atomic.Bool) (T, error)) (T, error) {
	var heard atomic.Bool
	if replicas == 1 {
		return ask(ctx, &heard)
	}
	type answer struct {
		v   T
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answer, maxAsked)
	t := time.NewTicker(askAgain)
	defer t.Stop()
	for asked := 0; ; {
		if asked == 0 || asked < maxAsked && !heard.Swap(false) {
			asked++
			go func() {
				v, err := ask(ctx, &heard)
				answers <- answer{v, err}
			}()
		}
		select {
		case a := <-answers:
			return a.v, a.err
		case <-t.C:
		}
	}
}

// TimedOut reports whether a question had no answer in its time, which ends before ctx.
func TimedOut(ctx context.Context, err error) bool {
	return errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
}
