package main

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/purgatory"
	"github.com/tickwheel/tickwheel/timingwheel"
)

// The program on a simulated clock, where what comes out hardly depends on chance.
func TestRun(t *testing.T) {
	*rate, *last, *timeout = 1000, 3*time.Second, 100*time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), &out))
		require.Regexp(t, `^(2999|3000) writes = 2[01][0-9]{2} committed \+ [89][0-9]{2} expired \+ 0 closed\n`, out.String(), "of the middle second none but the last")
		require.Regexp(t, `\nreplica dead   has 0; `, out.String())
		require.Regexp(t, `\nreplica fast   has (2999|3000); [1-9]`, out.String())
		require.Regexp(t, `\nexpired after +100ms `, out.String(), "and none early")
		require.LessOrEqual(t, time.Since(start), 3200*time.Millisecond)
	})
}

func TestInterrupt(t *testing.T) {
	*rate, *last, *timeout = 1000, 3*time.Second, time.Hour
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond) // while there is no majority
		defer cancel()
		var out bytes.Buffer
		require.ErrorIs(t, run(ctx, &out), context.DeadlineExceeded)
		require.Regexp(t, `^1(49|50)[0-9] writes = [0-9]+ committed \+ 0 expired \+ [45][0-9]{2} closed`, out.String(), "those who wait are answered")
	})
}

func TestMajority(t *testing.T) {
	wheel := timingwheel.New()
	defer wheel.Stop()
	c := newCluster(wheel, replicas(time.Hour))
	require.Equal(t, 3, c.majority)
	var got purgatory.Outcome
	require.NoError(t, c.write(time.Hour, func(o purgatory.Outcome) { got = o }))
	c.acknowledge(c.replicas[0], 1, false)
	c.acknowledge(c.replicas[0], 1, false)
	c.acknowledge(c.replicas[1], 1, true)
	require.Equal(t, purgatory.Pending, got, "the leader and one")
	c.acknowledge(c.replicas[2], 1, false)
	require.Equal(t, purgatory.Satisfied, got)
}

// Every write is answered once, as committed only if a majority has it, and none expires early.
func TestAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wheel := timingwheel.New()
		defer wheel.Stop()
		c := newCluster(wheel, replicas(3*time.Second))
		c.start()
		const writes, timeout = 3000, 100 * time.Millisecond
		var mu sync.Mutex
		answered := map[int64]purgatory.Outcome{}
		for i := range int64(writes) {
			start := time.Now()
			require.NoError(t, c.write(timeout, func(o purgatory.Outcome) {
				has := 1 // the leader
				c.mu.Lock()
				for _, r := range c.replicas {
					if r.acknowledged > i {
						has++
					}
				}
				c.mu.Unlock()
				mu.Lock()
				defer mu.Unlock()
				require.Equal(t, purgatory.Pending, answered[i], "answered twice")
				answered[i] = o
				require.True(t, o != purgatory.Satisfied || has >= c.majority)
				require.True(t, o != purgatory.Expired || time.Since(start) >= timeout)
			}))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(timeout + time.Second)
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, answered, writes)
	})
}
