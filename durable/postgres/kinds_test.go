package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
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
	require.True(t, postgres.Announces(`{"kinds":["a"]}`, "a")) // of an older version
	require.False(t, postgres.Announces(`{"kinds":["a"]}`, "b"))
}
