package stream

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// A job of a far bucket is canceled, and its message removed: the subject, which other jobs share, has an older message
// then. That is no sign that the stream went back.
func TestRemovedMessageOfASharedSubject(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{1, 3} {
		s, p := newStream(t, replicas, nil)
		witnesses := func(context.Context) (Witness, error) { return Witness{"TW.w", 30}, nil }
		p.says("TW.h.5", stored(20))
		require.NoError(t, s.Write(t.Context(), Write{Subject: "TW.h.5", Data: []byte("job")}))
		require.NoError(t, s.LookBack(t.Context(), witnesses))
		older := read("TW.h.5", 19, 0, "another job")
		p.says(direct+".TW.h.5", exactly(older))
		p.says(direct, func(m *nats.Msg) []*nats.Msg {
			if string(m.Data) == `{"seq": 20}` {
				return []*nats.Msg{status("404", "Message Not Found")}
			}
			return []*nats.Msg{older, read("TW.w", 30, 19, "w"), end(30)}
		})
		require.NoError(t, s.LookBack(t.Context(), witnesses))
		assert.Zero(t, s.Backs(), "%d replicas", replicas)
	}
}

// A removal by sequence is not sent again over a connection that was made anew: the server may have been put back, and
// then lacks what was stored elsewhere before the removal, or has other messages by these sequences.
func TestRemovalIsNotRepeatedOnAnotherConnection(t *testing.T) {
	t.Parallel()
	s, p := newStream(t, 1, nil)
	const purge = "$JS.API.STREAM.PURGE.TW"
	p.says("TW.a", stored(20))
	require.NoError(t, s.Write(t.Context(), Write{Subject: "TW.a", Data: []byte("x")}))
	p.says(direct, exactly(status("404", "Message Not Found")))
	p.says(info, described(1, 10, nil)) // it went back while the connection was lost
	p.says(purge, func(*nats.Msg) []*nats.Msg { p.cut(t); return nil }, exactly(message(`{"success":true}`)))
	backs := s.Backs()
	require.ErrorIs(t, s.Purge(t.Context(), backs, "TW.h.5", 18), driver.ErrUncertain)
	require.ErrorIs(t, s.Purge(t.Context(), backs, "TW.h.5", 18), ErrWentBack, "the past is looked at first")
	require.ErrorIs(t, s.Purge(t.Context(), backs, "TW.h.5", 18), ErrWentBack, "the sequence is of before")
	require.Len(t, p.questions(purge), 1)
}

// A removal that the server does not answer, or answers without a leader, is to be tried again by its caller.
func TestRemovalWithoutALeader(t *testing.T) {
	t.Parallel()
	s, p := newStream(t, 1, nil)
	p.says("$JS.API.STREAM.PURGE.TW", refusal(10008, "no leader"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.ErrorIs(t, s.Purge(ctx, s.Backs(), "TW.h.5", 18), driver.ErrUncertain)
}

// A version that is known to be newer refuses writes, also while the question for it has no answer in time.
func TestNewerVersionWithoutAnswer(t *testing.T) {
	t.Parallel()
	s, p := newStream(t, 1, nil)
	p.says(info, described(2, 0, nil))
	p.says("TW.a", stored(1))
	_, err := s.Info(t.Context(), "")
	require.ErrorIs(t, err, driver.ErrVersion)
	s.mu.Lock()
	s.synced = time.Now().Add(-2 * versionAge)
	s.mu.Unlock()
	p.says(info, silence)
	require.ErrorIs(t, s.Write(t.Context(), Write{Subject: "TW.a"}), driver.ErrVersion)
	require.Empty(t, p.questions("TW.a"))
}

// A read and a request to a consumer end at once when the connection is closed for good.
func TestConnectionClosedForGood(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(s *Stream) error{
		"read": func(s *Stream) error { _, err := s.Lasts(context.Background(), []string{"TW.x"}); return err },
		"pull": func(s *Stream) error {
			_, err := s.Pull("c", PullRequest{Batch: 1, MaxBytes: 1000, Expires: 10 * time.Second}, func([]*nats.Msg) {})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for try := 1; ; try++ { // a busy machine may be late now and then
				s, p := newStream(t, 1, nil)
				p.says(direct, silence)
				p.says(next, silence)
				time.AfterFunc(300*time.Millisecond, p.nc.Close)
				began := time.Now()
				_ = ask(s)
				took := time.Since(began)
				if took < 10*time.Second { // else it waits for 15 s or more
					return
				}
				require.Less(t, try, 4, "it takes %v", took)
			}
		})
	}
}

// A stream that an operator keeps on more servers than at Connect is read as one of several: any server may be behind.
func TestReplicasAdded(t *testing.T) {
	t.Parallel()
	s, p := newStream(t, 1, nil)
	p.says(info, described(1, 20, map[string]any{"num_replicas": 3}))
	_, err := s.Info(t.Context(), "")
	require.NoError(t, err)
	p.says(direct+".TW.m.1", exactly(status("404", "Message Not Found"))) // a follower that is behind
	p.says(leader, exactly(message(`{"message":{"subject":"TW.m.1","seq":7,"data":"Y2xvc2Vk","time":"2026-01-01T09:00:00Z"}}`)))
	m, err := s.Last(t.Context(), "TW.m.1")
	require.NoError(t, err)
	require.EqualValues(t, 7, m.Seq)
	p.says(info, described(1, 20, map[string]any{"num_replicas": 1})) // a deposed leader that does not know of it
	_, err = s.Info(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, 3, s.Replicas())
}

// A subscription that is made after its caller was told that the connection was lost is removed.
func TestNoSubscriptionIsLeftBehind(t *testing.T) {
	t.Parallel()
	s, p := newStream(t, 1, nil)
	before := p.nc.NumSubscriptions()
	gone, end := context.WithCancel(context.Background())
	end()
	s.Conn.unanswerable.Store(&gone)
	for range 20 { // the question or the loss may come first
		sub, err := s.Conn.ask(t.Context(), direct, nil, make(chan *nats.Msg, 8))
		if err == nil {
			Unsubscribe(sub)
		}
	}
	time.Sleep(500 * time.Millisecond) // all are made
	require.Eventually(t, func() bool { return p.nc.NumSubscriptions() == before }, time.Minute, time.Millisecond, "subscriptions are left")
}

// A server whose queue for the stream is full drops a write and says so: nothing is stored, and it is over soon.
func TestServerWithTooManyRequests(t *testing.T) {
	t.Parallel()
	s, p := newStream(t, 1, nil)
	p.says("TW.a", refusal(10167, "too many requests"), stored(1))
	require.NoError(t, s.Write(t.Context(), Write{Subject: "TW.a"}))
}

// With markers the server puts an empty message in the place of a heartbeat that has expired. Nobody can read a lease from
// that, and the claims of a worker that died stand still for as long as the marker lasts.
func TestSettingsWithDeleteMarkers(t *testing.T) {
	t.Parallel()
	s, p := newStream(t, 1, nil)
	p.says(info, described(1, 0, map[string]any{"subject_delete_marker_ttl": time.Hour}))
	_, err := s.Info(t.Context(), "")
	require.NoError(t, err)
	require.ErrorContains(t, s.WrongSettings(), "subject_delete_marker_ttl")
}
