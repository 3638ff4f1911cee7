package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// leaving is an engine's worker whose Run ends while a claim is under way.
type leaving struct {
	answering
	end    context.CancelFunc // of Run
	gaveUp error              // the claim
	after  []time.Duration    // of releases
}

func (l *leaving) Claim(ctx context.Context, held []*driver.Delivery) []driver.ClaimResult {
	if l.end != nil {
		l.end()
		l.gaveUp = ctx.Err()
	}
	return l.answering.Claim(ctx, held)
}

func (l *leaving) Release(ctx context.Context, held []*driver.Delivery, after time.Duration) error {
	l.after = append(l.after, after)
	return l.answering.Release(ctx, held, after)
}

// A worker that leaves may be handed what it has just handed back. Others get that at once.
func TestLeavingWorkerKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &leaving{answering: answering{beats: []error{nil}}}
		w, again, _ := wokenAgain(t, &l.answering)
		w.link.engine, w.link.requests = l, t.Context()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		w.accept(ctx, []*driver.Delivery{again})
		require.Equal(t, []time.Duration{0}, l.after)

		w.silent = true // it stays, and cannot run anything now
		w.accept(t.Context(), []*driver.Delivery{again})
		require.Len(t, l.after, 2)
		require.GreaterOrEqual(t, l.after[1], w.c.Lease/4)
	})
}

// A claim that is under way is waited for: what is given up may be stored later.
func TestClaimOutlivesTheContextOfRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &leaving{answering: answering{beats: []error{nil}}}
		w, again, _ := wokenAgain(t, &l.answering)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l.end, w.link.engine, w.link.requests = cancel, l, t.Context()
		require.True(t, w.admit(ctx, again))
		w.claimLoop(ctx)
		require.Error(t, ctx.Err())
		require.NoError(t, l.gaveUp)
	})
}
