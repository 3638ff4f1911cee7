package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

// What is not announced is found by polling, however often other kinds are.
func TestPolledBesideRings(t *testing.T) {
	s := sharedStore(t)
	q, err := durable.Open(t.Context(), s.open(t))
	require.NoError(t, err)
	defer q.Close()
	ran := make(chan time.Duration, 1)
	q.Handle("rings", func(context.Context, *durable.Attempt) error { return nil })
	q.Handle("polled", func(_ context.Context, a *durable.Attempt) error { ran <- time.Since(a.Due); return nil })
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	_, err = q.Add(t.Context(), durable.Job{Kind: "polled", After: 2 * time.Second}) // too far ahead
	require.NoError(t, err)
	for end, found := time.Now().Add(patience), false; !found; {
		require.True(t, time.Now().Before(end), "not found")
		_, err := q.Add(t.Context(), durable.Job{Kind: "rings"})
		require.NoError(t, err)
		select {
		case <-ran:
			found = true
		default:
		}
	}
	stop()
	require.NoError(t, <-done)
}

// Announcements say of which kinds they are, up to what the server takes.
func TestAnnouncements(t *testing.T) {
	require.Regexp(t, `^{"kinds":\["a","b"\],"due":.*}$`, postgres.Announcement(false, "b", "a", "b"))
	require.Equal(t, `{"old":true}`, postgres.Announcement(true))
	long := make([]string, 200)
	for i := range long {
		long[i] = fmt.Sprintf("kind %d, of a name that is rather long for one", i)
	}
	require.Equal(t, `{}`, postgres.Announcement(false, long...))
	for _, text := range []string{"some", "all", "", "{}", `{"old":true}`} {
		require.True(t, postgres.Announces(text, "any"), text)
	}
	require.True(t, postgres.Announces(`{"kinds":["a"]}`, "a")) // as of add_job
	require.False(t, postgres.Announces(`{"kinds":["a"]}`, "b"))
}

// A poll for announced jobs reads from the first to the last of them. If one time is unknown, it reads all that may
// be announced.
func TestSpanOfAnnouncement(t *testing.T) {
	now := time.Now().Truncate(time.Microsecond)
	early, late := now.Add(-time.Minute), now.Add(300*time.Millisecond)
	by, since, ahead := postgres.Announced(postgres.AnnouncementOf("e", "a", late, early, now), "a", now)
	require.Equal(t, "e", by)
	require.WithinRange(t, since, early.Add(-time.Second), early.Add(-time.Microsecond))
	require.GreaterOrEqual(t, ahead, 300*time.Millisecond)
	require.Less(t, ahead, 500*time.Millisecond)
	for _, text := range []string{`{"kinds":["a"]}`, "{}", postgres.AnnouncementOf("e", "a", late, time.Time{}, early), postgres.Announcement(true, "a")} {
		_, since, ahead = postgres.Announced(text, "a", now)
		require.Equal(t, now.Add(-recent), since, text)
		require.Equal(t, time.Second, ahead, text)
	}
}

// A job that is stored long before it is due, and so is not announced, is handed out as early as the worker
// has asked for.
func TestFetchReadsFarAhead(t *testing.T) {
	t.Parallel()
	e := sharedStore(t).open(t)
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	c := workConfig("w", time.Minute)
	c.Ahead = time.Hour
	w, err := e.Work(ctx, c)
	require.NoError(t, err)
	got := make(chan *driver.Delivery, 10)
	fed := make(chan error)
	go func() {
		fed <- w.Fetch(ctx, func(hs []*driver.Delivery) {
			for _, h := range hs {
				got <- h
			}
		})
	}()
	for _, after := range []time.Duration{0, 50 * time.Minute} { // the first poll is over when the second job is stored
		insertAll(t, e, record(after.String(), time.Now().Add(after)))
		select {
		case <-got:
		case <-ctx.Done():
			t.Fatal("not handed out: the job due after ", after)
		}
	}
	stop()
	require.NoError(t, <-fed)
}
