package main

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/purgatory"
	"github.com/tickwheel/tickwheel/timingwheel"
)

func program(ctx context.Context, args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = run(ctx, args, &out, &errs)
	return status, out.String(), errs.String()
}

// The program on a simulated clock, where what comes out hardly depends on chance.
func TestProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		status, stdout, stderr := program(t.Context(), "-rate", "1000", "-for", "3s", "-timeout", "100ms")
		require.Empty(t, stderr)
		require.Zero(t, status)
		require.Regexp(t, `^3000 writes = 2[01][0-9]{2} committed \+ [89][0-9]{2} expired \+ 0 closed \+ 0 refused\n`, stdout, "of the middle second none but the last")
		require.Regexp(t, `\nreplica dead   has 0; `, stdout)
		require.Regexp(t, `\nreplica fast   has 3000; [0-9]+ trips of 2ms or so, 0 acknowledgements lost, [1-9]`, stdout)
		require.Regexp(t, `\nreplica lossy .* [1-9][0-9]* acknowledgements lost`, stdout)
		require.LessOrEqual(t, time.Since(start), 3200*time.Millisecond)
	})
}

func TestInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond) // while there is no majority
		defer cancel()
		status, stdout, stderr := program(ctx, "-rate", "1000", "-for", "3s", "-timeout", "1h")
		require.Equal(t, 130, status)
		require.Equal(t, "quorum: interrupted\n", stderr)
		require.Regexp(t, `^1(49|50)[0-9] writes = [0-9]+ committed \+ 0 expired \+ [45][0-9]{2} closed`, stdout, "those who wait are answered")
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
	require.Equal(t, 3, c.has(1))
}

func TestBrokenPromises(t *testing.T) {
	wheel := timingwheel.New()
	defer wheel.Stop()
	l := &ledger{cluster: newCluster(wheel, replicas(time.Hour)), made: 3}
	l.answer(1, purgatory.Satisfied, 0)
	l.answer(1, purgatory.Satisfied, 0)
	l.timeout = time.Second
	l.answer(2, purgatory.Expired, time.Second-1)
	require.Equal(t, []string{
		"3 writes, and 2 answered or refused",
		"1 writes were answered twice",
		"2 writes were answered as committed without a majority",
		"a write expired early",
	}, l.report(&bytes.Buffer{}))
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"-x"}, {"5"}, {"-rate", "0"}, {"-timeout", "0s"}, {"-for", "-1s"}} {
		status, _, stderr := program(t.Context(), args...)
		require.Equal(t, 2, status)
		require.Contains(t, stderr, "Usage")
	}
	status, _, stderr := program(t.Context(), "-h")
	require.Zero(t, status)
	require.Contains(t, stderr, "Usage")
}
