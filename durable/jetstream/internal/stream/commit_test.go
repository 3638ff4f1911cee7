package stream

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// write is a group of one message.
func write(subject string) Group { return Group{{Subject: subject, Data: []byte("data")}} }

// Each answer to a write says that it was stored, that it was not, or that nobody knows; a refusal that may be over soon is
// tried again.
func TestAnswersToAWrite(t *testing.T) {
	t.Parallel()
	busy, full := refusal(codeWrongLastBusy, "busy"), refusal(10047, "no room")
	noLeader := refusal(10008, "no leader")
	for name, c := range map[string]struct {
		answers []answer
		room    bool // Room makes some
		err     error
		tries   int
	}{
		"stored":                     {answers: []answer{stored(7)}, tries: 1},
		"another came first":         {answers: []answer{refusal(codeWrongLast, "wrong last sequence")}, err: ErrConflict, tries: 1},
		"busy once":                  {answers: []answer{busy, stored(7)}, tries: 2},
		"busy for long":              {answers: []answer{busy}, err: ErrBusy, tries: 5},
		"full":                       {answers: []answer{full}, err: driver.ErrFull, tries: 1},
		"full until there is room":   {answers: []answer{full, stored(7)}, room: true, tries: 2},
		"full though there was room": {answers: []answer{full}, room: true, err: driver.ErrFull, tries: 2},
		"the disk":                   {answers: []answer{refusal(10077, "write: no space left on device")}, err: driver.ErrFull, tries: 1},
		"the store":                  {answers: []answer{refusal(10077, "checksum")}, err: driver.ErrStorage, tries: 1},
		"another refusal":            {answers: []answer{noLeader}, err: &apiError{}, tries: 1},
		"no sense":                   {answers: []answer{exactly(message("+OK"))}, err: driver.ErrUncertain, tries: 1},
		"no sequence":                {answers: []answer{exactly(message(`{"stream":"TW"}`))}, err: driver.ErrUncertain, tries: 1},
		"null":                       {answers: []answer{exactly(message("null"))}, err: driver.ErrUncertain, tries: 1},
		"nobody listens once":        {answers: []answer{exactly(status("503", "")), stored(7)}, tries: 2},
		"lost":                       {answers: []answer{silence}, err: driver.ErrUncertain, tries: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := newStream(t, 1, nil)
			s.Room = func(context.Context) bool { return c.room }
			p.says("TW.a", c.answers...)
			ctx := t.Context()
			if name == "lost" {
				lost, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
				ctx = lost
			}
			seq, err := s.WriteSeq(ctx, write("TW.a")...)
			switch c.err.(type) {
			case nil:
				require.NoError(t, err)
				require.EqualValues(t, 7, seq)
			case *apiError:
				require.ErrorAs(t, err, new(*apiError))
			default:
				require.ErrorIs(t, err, c.err)
			}
			require.Len(t, p.questions("TW.a"), c.tries)
		})
	}
}

// batches makes the peer store batches, each with all of it or nothing. Refuse names the error of a batch.
func (p *peer) batches(subjects []string, refuse func(subjects []string) answer) (stored *[]string) {
	var mu sync.Mutex
	open := map[string][]string{}
	stored = new([]string)
	take := func(m *nats.Msg) []*nats.Msg {
		mu.Lock()
		defer mu.Unlock()
		id := m.Header.Get("Nats-Batch-Id")
		open[id] = append(open[id], m.Subject)
		if id != "" && m.Header.Get("Nats-Batch-Commit") == "" {
			return nil
		}
		batch := open[id]
		delete(open, id)
		if a := refuse(batch); a != nil {
			return a(m)
		}
		*stored = append(*stored, batch...)
		return []*nats.Msg{message(fmt.Sprintf(`{"stream":"TW","seq":%d}`, len(*stored)))}
	}
	for _, subject := range subjects {
		p.says(subject, take)
	}
	return stored
}

// A batch that is refused for one group is committed in halves: that group alone is refused, and each of the others has the
// sequence of its first message.
func TestBatchRefusedForOneGroup(t *testing.T) {
	t.Parallel()
	s, p := newStream(t, 1, nil)
	var groups []Group
	var subjects []string
	for i := range 7 {
		a, b := fmt.Sprintf("TW.%d.a", i), fmt.Sprintf("TW.%d.b", i)
		groups, subjects = append(groups, Group{{Subject: a}, {Subject: b}}), append(subjects, a, b)
	}
	stored := p.batches(subjects, func(subjects []string) answer {
		if strings.Contains(strings.Join(subjects, " "), "TW.4.b") {
			return refusal(codeWrongLast, "wrong last sequence")
		}
		return nil
	})
	for i, res := range s.Commit(t.Context(), groups) {
		if i == 4 {
			require.ErrorIs(t, res.Err, ErrConflict)
			require.Zero(t, res.First)
			continue
		}
		require.NoError(t, res.Err)
		require.Equal(t, groups[i][0].Subject, (*stored)[res.First-1])
	}
	require.Len(t, *stored, 12)
}

// A batch whose answer has a sequence that is too low is uncertain: else the sequences of its messages would be those of none.
func TestBatchWithALowSequence(t *testing.T) {
	t.Parallel()
	s, p := newStream(t, 1, nil)
	p.says("TW.b", stored(1))
	results := s.Commit(t.Context(), []Group{{{Subject: "TW.a"}, {Subject: "TW.b"}}})
	require.ErrorIs(t, results[0].Err, driver.ErrUncertain)
	require.Zero(t, s.history.high)
}

// A batch whose answer is lost is not tried again, in halves neither: it may be stored.
func TestBatchWithoutAnswer(t *testing.T) {
	t.Parallel()
	s, p := newStream(t, 1, nil)
	p.says("TW.b", silence)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for _, res := range s.Commit(ctx, []Group{{{Subject: "TW.a"}, {Subject: "TW.b"}}, {{Subject: "TW.a"}, {Subject: "TW.b"}}}) {
		require.ErrorIs(t, res.Err, driver.ErrUncertain)
	}
	require.Len(t, p.questions("TW.b"), 2)
}

// A write whose connection is lost is uncertain, and the next one looks first whether the stream went back.
func TestConnectionLostInAWrite(t *testing.T) {
	t.Parallel()
	s, p := newStream(t, 1, nil)
	p.says("TW.a", stored(20))
	require.NoError(t, s.write(t.Context(), "TW.a"))
	p.says("TW.b", func(*nats.Msg) []*nats.Msg { p.cut(t); return nil })
	require.ErrorIs(t, s.write(t.Context(), "TW.b"), driver.ErrUncertain)
	p.says(info, described(1, 19, nil))
	p.says("TW.b", stored(20))
	b := Write{Subject: "TW.b", Last: Seq(20)}
	require.ErrorIs(t, s.Write(t.Context(), b), ErrWentBack)
	require.EqualValues(t, 1, s.Backs())
	require.NoError(t, s.Write(t.Context(), b))
}

func (s *Stream) write(ctx context.Context, subject string) error {
	return s.Write(ctx, write(subject)...)
}

// A group that is too large is refused by itself, and no message of it is sent.
func TestTooLargeAlone(t *testing.T) {
	t.Parallel()
	s, p := newStream(t, 1, nil)
	large := write("TW.large")
	large[0].Data = make([]byte, s.Conn.MaxPayload())
	p.says("TW.a", stored(1))
	p.says("TW.b", stored(2))
	results := s.Commit(t.Context(), []Group{write("TW.a"), large, write("TW.b")})
	require.NoError(t, results[0].Err)
	require.ErrorIs(t, results[1].Err, driver.ErrInvalid)
	require.ErrorContains(t, results[1].Err, "TW.large")
	require.NoError(t, results[2].Err)
	require.Empty(t, p.questions("TW.large"))
}

// Nothing is sent while the disk is full, or the stream has a newer version.
func TestNoWrite(t *testing.T) {
	t.Parallel()
	s, p := newStream(t, 1, nil)
	s.Free = func() (int64, error) { return 0, driver.ErrFull }
	require.ErrorIs(t, s.write(t.Context(), "TW.a"), driver.ErrFull)
	require.ErrorIs(t, s.PurgeAll(t.Context(), "TW.a"), driver.ErrFull)
	s.Remove(t.Context(), s.Backs(), Message{Seq: 7})
	s.Free = nil
	for version, want := range map[int]error{2: driver.ErrVersion, 0: driver.ErrStorage} {
		p.says(info, described(version, 0, nil))
		s.mu.Lock()
		s.synced = time.Time{}
		s.mu.Unlock()
		require.ErrorIs(t, s.write(t.Context(), "TW.a"), want)
		require.ErrorIs(t, s.write(t.Context(), "TW.a"), want, "as known")
	}
	require.Empty(t, p.questions("TW.a"))
	require.Empty(t, p.questions("$JS.API.STREAM.PURGE.TW"))
	require.Empty(t, p.questions("$JS.API.STREAM.MSG.DELETE.TW"))
}

// A denial ends the call that it concerns at once: a question, a write, the middle of a batch. Where the answers are denied,
// a write may be stored.
func TestDenials(t *testing.T) {
	t.Parallel()
	s, p := newStream(t, 1, &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{leader, "TW.no", "$JS.API.STREAM.MSG.DELETE.TW"}}})
	p.says("TW.end", silence)
	_, err := s.OfLeader(t.Context(), map[string]any{"seq": 1})
	require.True(t, IsDenial(err), "%v", err)
	err = s.write(t.Context(), "TW.no")
	require.True(t, IsDenial(err), "%v", err)
	require.NotErrorIs(t, err, driver.ErrUncertain)
	err = s.Write(t.Context(), Write{Subject: "TW.no"}, Write{Subject: "TW.end"})
	require.True(t, IsDenial(err), "%v", err)
	require.False(t, IsLost(err))
	s.Remove(t.Context(), s.Backs(), Message{Seq: 7})
	require.True(t, s.mayNotRemove.Load(), "it is not tried again")

	s, p = newStream(t, 1, &server.Permissions{Subscribe: &server.SubjectPermission{Deny: []string{"_INBOX.>"}}})
	p.says("TW.a", stored(1))
	s.synced = time.Now() // else the question for the version says it
	err = s.write(t.Context(), "TW.a")
	require.True(t, IsDenial(err), "%v", err)
}
