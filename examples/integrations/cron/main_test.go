package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A bubble's clock starts at midnight UTC of this day.
var bubbleStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// simulate runs the expressions on a simulated clock from the given time on. It returns
// the instants at which each one ran, and checks them against the schedule itself.
func simulate(t *testing.T, from time.Time, period time.Duration, expressions ...string) (ran [][]time.Time) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(from.Sub(bubbleStart))
		table := newCrontab(io.Discard)
		index := map[*entry]int{}
		for i, expression := range expressions {
			require.NoError(t, table.add(expression))
			index[table.entries[i]] = i
		}
		ran = make([][]time.Time, len(expressions))
		table.onRun = func(e *entry, at time.Time) {
			ran[index[e]] = append(ran[index[e]], at)
		}
		start := time.Now()
		require.True(t, start.Equal(from))
		require.NoError(t, table.start())
		time.Sleep(period)
		synctest.Wait()
		end := time.Now()
		table.stop()
		require.Zero(t, table.wheel.Len())
		for i, e := range table.entries {
			var want []time.Time
			for at := e.schedule.Next(start); !at.IsZero() && !at.After(end); at = e.schedule.Next(at) {
				want = append(want, at)
			}
			require.EqualValues(t, len(want), e.job.Runs(), e.expression)
			require.Len(t, ran[i], len(want), e.expression)
			for n, at := range ran[i] {
				require.True(t, at.Equal(want[n]), "%s: run %d at %v, and not at %v", e.expression, n, at, want[n])
			}
		}
	})
	return ran
}

func TestWeeks(t *testing.T) {
	const week = 7 * 24 * time.Hour
	ran := simulate(t, bubbleStart.Add(73*24*time.Hour+17*time.Millisecond), 3*week, // over the end of March
		"*/30 * * * * *",
		"@every 40s",
		"*/5 * * * *",
		"30 3 * * 1-5",
		"CRON_TZ=Europe/Berlin 0 8 * * *",
		"CRON_TZ=Asia/Kolkata */20 9-17 * * 1,3,5",
		"CRON_TZ=America/New_York @weekly",
		"@monthly",
		"0 0 29 2 *", // was two weeks ago
	)
	for i, want := range []int{3 * 7 * 24 * 120, 3 * 7 * 24 * 90, 3 * 7 * 24 * 12, 15, 21, 9 * 27, 3, 1, 0} {
		require.Len(t, ran[i], want)
	}
}

func TestEverySecond(t *testing.T) {
	ran := simulate(t, bubbleStart.Add(100*time.Millisecond), 6*time.Hour, "* * * * * *", "@every 2s")
	require.Len(t, ran[0], 6*60*60)
	require.Len(t, ran[1], 6*60*60/2)
}

// On March 26, 2000 the clocks of Berlin went from 02:00 to 03:00, and on October 29
// from 03:00 back to 02:00. The times here are in UTC.
func TestDaylightSaving(t *testing.T) {
	utc := func(month time.Month, day, hour, minute int) time.Time {
		return time.Date(2000, month, day, hour, minute, 0, 0, time.UTC)
	}
	for _, c := range []struct {
		expression string
		from       time.Time
		days       int
		want       []time.Time
	}{
		{
			"CRON_TZ=Europe/Berlin 0 8 * * *", utc(time.March, 24, 12, 0), 4,
			[]time.Time{utc(time.March, 25, 7, 0), utc(time.March, 26, 6, 0), utc(time.March, 27, 6, 0), utc(time.March, 28, 6, 0)},
		},
		{
			"CRON_TZ=Europe/Berlin 0 8 * * *", utc(time.October, 27, 12, 0), 4,
			[]time.Time{utc(time.October, 28, 6, 0), utc(time.October, 29, 7, 0), utc(time.October, 30, 7, 0), utc(time.October, 31, 7, 0)},
		},
		{ // a time that the day of the change has not: at the first moment after the gap
			"CRON_TZ=Europe/Berlin 30 2 * * *", utc(time.March, 24, 12, 0), 3,
			[]time.Time{utc(time.March, 25, 1, 30), utc(time.March, 26, 1, 0), utc(time.March, 27, 0, 30)},
		},
		{ // one that the day has twice: once
			"CRON_TZ=Europe/Berlin 30 2 * * *", utc(time.October, 27, 12, 0), 3,
			[]time.Time{utc(time.October, 28, 0, 30), utc(time.October, 29, 0, 30), utc(time.October, 30, 1, 30)},
		},
		{ // a zone without a change
			"CRON_TZ=UTC 0 8 * * *", utc(time.March, 24, 12, 0), 3,
			[]time.Time{utc(time.March, 25, 8, 0), utc(time.March, 26, 8, 0), utc(time.March, 27, 8, 0)},
		},
	} {
		ran := simulate(t, c.from, time.Duration(c.days)*24*time.Hour, c.expression)
		for i, at := range ran[0] {
			ran[0][i] = at.UTC()
		}
		require.Equal(t, c.want, ran[0], c.expression)
	}
}

// runWith runs the program with the flags -for and -next.
func runWith(ctx context.Context, d time.Duration, n int, expressions ...string) (string, error) {
	*period, *next = d, n
	var out bytes.Buffer
	err := run(ctx, &out, expressions)
	return out.String(), err
}

func TestProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		out, err := runWith(t.Context(), 4500*time.Millisecond, 2, "CRON_TZ=UTC */2 * * * * *", "CRON_TZ=Europe/Berlin 0 8 * * *", "0 0 30 2 *")
		require.NoError(t, err)
		require.Equal(t, 4500*time.Millisecond, time.Since(start))
		require.Equal(t, `CRON_TZ=UTC */2 * * * * *
    Sat 2000-01-01 00:00:02 UTC
    Sat 2000-01-01 00:00:04 UTC
CRON_TZ=Europe/Berlin 0 8 * * *
    Sat 2000-01-01 08:00:00 CET
    Sun 2000-01-02 08:00:00 CET
0 0 30 2 *
    never

Sat 2000-01-01 00:00:02 UTC  CRON_TZ=UTC */2 * * * * *  (0s late)
Sat 2000-01-01 00:00:04 UTC  CRON_TZ=UTC */2 * * * * *  (0s late)

     2 runs  CRON_TZ=UTC */2 * * * * *
     0 runs  CRON_TZ=Europe/Berlin 0 8 * * *
     0 runs  0 0 30 2 *
`, out)
	})
}

func TestSample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, err := runWith(t.Context(), 5100*time.Millisecond, 3)
		require.NoError(t, err)
		for _, expression := range sample {
			require.Contains(t, out, expression)
		}
		require.Equal(t, 5+2, strings.Count(out, " late)\n"))
	})
}

func TestBadExpressions(t *testing.T) {
	for expression, want := range map[string]string{
		"":                            "empty",
		"   ":                         "empty",
		"* * * *":                     "expected 5 to 6 fields",
		"* * * * * * *":               "expected 5 to 6 fields",
		"61 * * * *":                  "above maximum",
		"*/0 * * * *":                 "step of range must be a positive number",
		"x * * * *":                   "failed to parse",
		"@fortnightly":                "unrecognized descriptor",
		"@every soon":                 "invalid duration",
		"CRON_TZ=Mars/Base 0 8 * * *": `time zone "Mars/Base": unknown`,
		"CRON_TZ=Europe/Berlin":       "it is empty",
		"TZ=Europe/Berlin ":           "it is empty",
		"CRON_TZ=Europe/Berlin 0 8":   "expected 5 to 6 fields",
	} {
		out, err := runWith(t.Context(), time.Minute, 3, "@every 1s", expression)
		require.ErrorContains(t, err, "bad expression")
		require.ErrorContains(t, err, want)
		require.Empty(t, out, "nothing runs")
	}
	_, err := runWith(t.Context(), time.Minute, 3, "soon", "never")
	require.ErrorContains(t, err, "soon")
	require.ErrorContains(t, err, "never")
}

func TestInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(2500*time.Millisecond, cancel)
		start := time.Now()
		out, err := runWith(ctx, time.Hour, 3, "* * * * * *")
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 2500*time.Millisecond, time.Since(start))
		require.Contains(t, out, "     2 runs  * * * * * *\n")
	})
}
