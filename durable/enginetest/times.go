package enginetest

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
)

// The last time that a job may have, and durations that no sum may overflow with.
var lastTime = time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)

const (
	longest  = time.Duration(math.MaxInt64)
	shortest = time.Duration(math.MinInt64)
)

// Each time is checked as it is stored, in whole microseconds: the largest is stored, one that would
// be rounded up to the year 10000 is refused, and one that has passed is now, however long ago.
func extremeTimes(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	for _, job := range []durable.Job{
		{At: lastTime}, {At: lastTime.Add(-1)}, {Expires: lastTime}, {Expires: lastTime.Add(-999)}, {After: longest},
		{Timeout: longest}, {Timeout: 1}, {Key: "later", OnKey: durable.Later, MaxWait: longest}, {Key: "later", OnKey: durable.Later, MaxWait: 1},
		{At: time.Unix(0, 0)}, {At: time.Unix(0, -1)}, {At: time.Unix(-86400, 0)}, {At: time.Unix(-1<<60, 0)}, {After: shortest}, {After: -1},
	} {
		job.Kind = kind
		before := r.now()
		info := r.get(r.add(job)[0])
		switch {
		case !job.At.IsZero() && job.At.After(before):
			require.True(t, info.Due.Equal(lastTime) && info.Job.At.Equal(lastTime), "%v is stored as %v", job.At, info.Due)
		case job.After > 0:
			require.WithinDuration(t, before.Add(longest), info.Due, patience)
		default:
			require.WithinDuration(t, before, info.Due, patience, "%v, %v", job.At, job.After)
		}
		if !job.Expires.IsZero() {
			require.True(t, info.Job.Expires.Equal(lastTime), "%v is stored as %v", job.Expires, info.Job.Expires)
		}
		require.GreaterOrEqual(t, info.Job.Timeout, job.Timeout.Truncate(time.Microsecond))
		r.cancel(info.Ref, true, "")
	}
	ref := r.add(durable.Job{Kind: kind, After: time.Hour})[0]
	for _, at := range []time.Time{lastTime.Add(1), lastTime.Add(900), lastTime.Add(time.Microsecond), time.Unix(1<<63-62135596801, 999_999_999)} {
		for _, job := range []durable.Job{{Kind: kind, At: at}, {Kind: kind, Expires: at}, {Kind: kind, Key: "k", OnKey: durable.Replace, Expires: at}} {
			_, err := r.Add(within(t), job)
			require.ErrorIs(t, err, durable.ErrInvalid, at)
		}
		_, err := r.Reschedule(within(t), ref, at)
		require.ErrorIs(t, err, durable.ErrInvalid, at)
		for _, opt := range []durable.ScheduleOption{durable.StartAt(at), durable.EndAt(at)} {
			require.ErrorIs(t, r.SetSchedule(within(t), "x", "@daily", durable.Job{Kind: kind}, opt), durable.ErrInvalid, at)
		}
	}
	r.reschedule(ref, lastTime.Add(-1), true)
	require.True(t, r.get(ref).Due.Equal(lastTime))
	for _, at := range []time.Time{{}, time.Unix(0, 0), time.Unix(-86400, 0), time.Unix(-1<<60, 0)} {
		r.reschedule(ref, at, true)
		require.WithinDuration(t, r.now(), r.get(ref).Due, patience, at)
	}
	r.cancel(ref, true, "")
	empty(t, r)
}

// The same of schedules: a time on either side of 1970 is a time like any other.
func scheduleTimes(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	job := durable.Job{Kind: kind}
	for _, end := range []time.Time{time.Unix(0, 0), time.Unix(0, 1000), time.Unix(0, -1000), time.Unix(86400, 0), time.Unix(-86400, 0), time.Unix(-1<<60, 0)} {
		require.ErrorIs(t, r.SetSchedule(within(t), "x", "@daily", job, durable.EndAt(end)), durable.ErrInvalid, end)
	}
	require.ErrorIs(t, r.SetSchedule(within(t), "x", "@daily", job, durable.StartAt(time.Unix(-1<<60, 0))), durable.ErrInvalid)
	for _, start := range []time.Time{time.Unix(0, 0), time.Unix(-86400, 0), time.Unix(86400, 0), {}} {
		r.schedule("x", "@every 7h", job, durable.StartAt(start), durable.EndAt(lastTime), durable.Jitter(1))
		from := start
		if start.IsZero() {
			from = time.Unix(0, 0)
		}
		next := r.schedules()["x"].Next
		require.Zero(t, (next.Unix()-from.Unix())%(7*3600), "%v does not count from %v", next, start)
		require.WithinRange(t, next, r.now().Add(-patience), r.now().Add(7*time.Hour))
	}
	r.schedule("x", "@daily", job, durable.Jitter(longest), durable.StartAt(time.Unix(-86400, 0)))
	require.Less(t, r.schedules()["x"].Next.Sub(r.now()), longest)
	require.ErrorIs(t, r.SetSchedule(within(t), "x", "@daily", job, durable.StartAt(lastTime)), durable.ErrInvalid, "its first time is beyond")
	r.schedule("x", "@every 1h", job, durable.StartAt(lastTime.Add(-1)))
	require.True(t, r.schedules()["x"].Next.Equal(lastTime))
	r.deleteSchedule("x")
	empty(t, r)
}

// The longest durations of options and of errors are long.
func longDurations(t *testing.T, s Store) {
	r := open(t, s.Open(t), durable.WithRetention(longest), durable.WithLease(longest), durable.WithGrace(longest), durable.WithAhead(longest),
		durable.WithBackoff(func(int) time.Duration { return longest }))
	blocked, release := make(chan bool), make(chan bool)
	r.handle("dies", fails(durable.Discard(errTest)))
	r.handle("fails", fails(errTest))
	r.handle("retries", fails(durable.RetryAfter(longest, errTest)))
	r.handle("snoozes", fails(durable.Snooze(longest)))
	r.handle("long", func(context.Context, *durable.Attempt) error { blocked <- true; <-release; return nil })
	r.start()
	refs := r.add(durable.Job{Kind: "dies"}, durable.Job{Kind: "fails"}, durable.Job{Kind: "retries"}, durable.Job{Kind: "snoozes"}, durable.Job{Kind: "long", Timeout: longest})
	<-blocked
	stuck := r.Stats().Stuck
	close(release)
	require.Zero(t, stuck)
	r.awaitDead(refs[0])
	for _, ref := range refs[1:4] {
		var info durable.Info
		await(t, "it waits for another attempt", func() bool { info = r.get(ref); return info.State == durable.Waiting && info.Due.Year() > 2200 })
		r.cancel(ref, true, "")
	}
	r.awaitGone(refs[4])
	r.ok(r.Health(within(t)))
	time.Sleep(2500 * time.Millisecond) // longer than a server takes to remove what has ended
	require.Equal(t, durable.Dead, r.get(refs[0]).State)
}
