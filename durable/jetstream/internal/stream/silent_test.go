package stream

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// A question is asked again beside those that have no answer, so often at most, and not while one is being
// answered. The first answer counts.
func TestSoonest(t *testing.T) {
	for name, c := range map[string]struct {
		replicas int
		answers  int           // the question that is answered, from 1
		after    time.Duration // its answer comes
		heard    bool          // the first one is being answered
		asked    int64
		took     time.Duration
	}{
		"one server":             {1, 1, time.Second, false, 1, time.Second},
		"the first answers":      {3, 1, time.Millisecond, false, 1, time.Millisecond},
		"the third answers":      {3, 3, time.Millisecond, false, 3, 2*askAgain + time.Millisecond},
		"the first is slow":      {3, 1, 5 * askAgain / 2, false, 3, 5 * askAgain / 2},
		"all are slow":           {3, 1, time.Minute, false, maxAsked, time.Minute},
		"a long answer is heard": {3, 1, 5 * askAgain / 2, true, 1, 5 * askAgain / 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked atomic.Int64
				began := time.Now()
				n, err := soonest(t.Context(), c.replicas, func(ctx context.Context, heard *atomic.Bool) (int, error) {
					n := int(asked.Add(1))
					if n != c.answers {
						<-ctx.Done()
						return 0, ctx.Err()
					}
					for end := time.Now().Add(c.after); time.Now().Before(end); time.Sleep(time.Millisecond) {
						heard.Store(c.heard)
					}
					return n, nil
				})
				require.NoError(t, err)
				require.Equal(t, c.answers, n)
				require.Equal(t, c.took, time.Since(began))
				require.Equal(t, c.asked, asked.Load())
			})
		})
	}
}

// A request that a leader has not answered is given up when the leader is known to be deposed, and not after its timeout.
func TestLeaderDeposed(t *testing.T) {
	t.Parallel()
	p, _ := newStream(t, 3, nil)
	const silent = "silent"
	_, err := p.Conn.NC.Subscribe(silent, func(*nats.Msg) {})
	require.NoError(t, err)
	p.noteLeader("n0 since then")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	given := make(chan error, 1)
	go func() {
		_, err := p.Conn.Request(ctx, p.deposed(), &nats.Msg{Subject: silent})
		given <- err
	}()
	time.Sleep(10 * time.Millisecond)
	p.noteLeader("n0 since then")
	require.NotNil(t, p.deposed())
	p.noteLeader("n1 since now")
	require.ErrorIs(t, <-given, nats.ErrDisconnected)
	select {
	case <-p.deposed():
		t.Fatal("its successor leads still")
	default:
	}
}
