package stream

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// Each sign that a stream went back is seen once, and drops what is cached. A stream that stays as it was gives none.
func TestSignsOfAStreamThatWentBack(t *testing.T) {
	t.Parallel()
	witnesses := func(context.Context) (Witness, error) { return Witness{"TW.w", 30}, nil }
	landmark := func(data string) answer { return exactly(read("TW.c.x", 20, 0, data)) }
	for name, c := range map[string]struct {
		replicas int
		backs    int64
		sign     func(s *Stream, p *peer)
	}{
		"nothing": {1, 0, func(*Stream, *peer) {}},
		"the last sequence of the stream is lower": {1, 1, func(_ *Stream, p *peer) { p.says(info, described(1, 19, nil)) }},
		"one of several servers is behind":         {3, 0, func(_ *Stream, p *peer) { p.says(info, described(1, 19, nil)) }},
		"it was made anew": {3, 1, func(_ *Stream, p *peer) {
			p.says(info, described(1, 20, map[string]any{"created": "2026-01-01T09:00:00Z"}))
		}},
		"another message has the sequence of its own": {3, 1, func(_ *Stream, p *peer) { p.says(direct, landmark("other")) }},
		"the message was removed":                     {3, 0, func(_ *Stream, p *peer) { p.says(direct, exactly(status("404", "Message Not Found"))) }},
		"the subject has an older one":                {1, 1, func(_ *Stream, p *peer) { p.says(direct+".TW.c.x", exactly(read("TW.c.x", 8, 0, "old"))) }},
		"a server that is behind has an older one": {3, 0, func(_ *Stream, p *peer) {
			p.says(direct+".TW.c.x", exactly(read("TW.c.x", 8, 0, "old")))
			p.says(direct, func(m *nats.Msg) []*nats.Msg {
				if strings.Contains(string(m.Data), "multi_last") {
					return []*nats.Msg{read("TW.c.x", 20, 0, "data"), read("TW.w", 30, 20, ""), end(30)}
				}
				return landmark("data")(m)
			})
		}},
		"all servers have an older one": {3, 1, func(_ *Stream, p *peer) {
			p.says(direct+".TW.c.x", exactly(read("TW.c.x", 8, 0, "old")))
			p.says(direct, exactly(read("TW.c.x", 8, 0, "old"), read("TW.w", 30, 8, ""), end(30)))
		}},
		"a write has a sequence that was there": {3, 1, func(s *Stream, p *peer) {
			p.says("TW.c.x", stored(20))
			require.NoError(t, s.write(t.Context(), "TW.c.x"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := newStream(t, c.replicas, nil)
			dropped := 0
			s.Drop = append(s.Drop, func() { dropped++ })
			p.says("TW.c.x", stored(20))
			p.says(info, described(1, 19, nil), described(1, 20, nil))
			p.says(direct, landmark("data"))
			p.says(direct+".TW.c.x", landmark("data"))
			poll := func() {
				require.NoError(t, s.LookBack(t.Context(), witnesses))
				_, err := s.Info(t.Context(), "")
				require.NoError(t, err)
			}
			require.NoError(t, s.write(t.Context(), "TW.c.x"))
			poll() // the next one reads the message
			poll()
			require.Zero(t, s.Backs())
			c.sign(s, p)
			poll()
			poll()
			require.Equal(t, c.backs, s.Backs())
			require.EqualValues(t, c.backs, dropped)
		})
	}
}

// An answer to what was asked before the stream went back says nothing of the stream as it is now.
func TestAnswerOfBefore(t *testing.T) {
	t.Parallel()
	s := New(nil, nil, "", "TW", 1)
	was := s.history.now()
	s.WentBack(was.backs, 5, "a test")
	s.learnSequence(was, 1000, 1000)
	s.wrote(was, []Group{write("s")}, 2000)
	require.EqualValues(t, 5, s.history.now().high)
	require.Zero(t, s.history.last)
	s.WentBack(was.backs, 3, "a test")
	require.EqualValues(t, 1, s.Backs())
}

// A stream is the same since an answer has shown it, until one shows another number of messages or a message that was
// stored later, or the stream went back. Of several servers one may be behind, so that no answer shows that.
func TestSince(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{1, 3} {
		s, p := newStream(t, replicas, nil)
		isSame := func() bool {
			was := s.Since()
			_, err := s.Info(t.Context(), "")
			require.NoError(t, err)
			return s.Since().Equal(was)
		}
		p.says(info, described(1, 20, nil))
		require.False(t, isSame())
		require.Equal(t, replicas == 1, isSame())
		for _, changed := range []map[string]any{{"messages": 3}, {"messages": 2}, {"last_ts": "2026-01-01T08:30:00Z"}, {"bytes": 5000}, {"first_seq": 4}} {
			p.says(info, described(1, 20, changed))
			require.False(t, isSame(), "%v", changed)
			require.Equal(t, replicas == 1, isSame(), "%v", changed)
		}
		s.WentBack(s.Backs(), 20, "a test")
		require.False(t, isSame(), "it went back")
		require.Equal(t, replicas == 1, isSame())
	}
}

// A commit is not sent whose conditions were read before the stream went back, whoever noticed that meanwhile: here it is
// the question for the version.
func TestNoWriteByConditionsOfBefore(t *testing.T) {
	t.Parallel()
	s, p := newStream(t, 1, nil)
	p.says("TW.a", stored(20))
	require.NoError(t, s.write(t.Context(), "TW.a"))
	p.says(info, described(1, 19, nil))
	s.mu.Lock()
	s.synced = time.Time{} // the version is asked for
	s.mu.Unlock()
	conditional := Group{{Subject: "TW.a"}, {Subject: "TW.a", Last: Seq(20)}}
	for _, res := range s.Commit(t.Context(), []Group{conditional, conditional}) {
		require.ErrorIs(t, res.Err, ErrWentBack)
	}
	require.Len(t, p.questions("TW.a"), 1)
	s.synced = time.Time{}
	p.says(info, described(1, 18, nil))
	require.NoError(t, s.write(t.Context(), "TW.a"), "it has no condition")
	require.EqualValues(t, 2, s.Backs())
}
