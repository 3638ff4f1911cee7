package stream

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// A request to a consumer ends when its messages use it up, or as the server says. What came before counts, and the next
// request tells of the error.
func TestPull(t *testing.T) {
	t.Parallel()
	job := message("a job")
	for name, c := range map[string]struct {
		messages []*nats.Msg
		got      int
		err      string
	}{
		"no more":                    {[]*nats.Msg{job, status("404", "No Messages")}, 1, ""},
		"nothing":                    {[]*nats.Msg{status("404", "No Messages")}, 0, ""},
		"it has expired":             {[]*nats.Msg{status("100", "Idle Heartbeat"), job, status("408", "Request Timeout")}, 1, ""},
		"used up by number":          {[]*nats.Msg{job, job, job}, 3, ""},
		"used up by bytes":           {[]*nats.Msg{job, message(string(make([]byte, 1000)))}, 2, ""},
		"completed":                  {[]*nats.Msg{job, status("409", "Batch Completed")}, 1, ""},
		"the next is too large":      {[]*nats.Msg{status("409", "Message Size Exceeds MaxBytes")}, 0, ErrTooLarge.Error()},
		"the one after is too large": {[]*nats.Msg{job, status("409", "Message Size Exceeds MaxBytes")}, 1, ""},
		"it was deleted":             {[]*nats.Msg{status("409", "Consumer Deleted")}, 0, "Consumer Deleted"},
		"there is no such":           {[]*nats.Msg{status("503", "")}, 0, nats.ErrNoResponders.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := newStream(t, 1, nil)
			p.says(next, exactly(c.messages...))
			handed := 0
			got, err := s.Pull("c", PullRequest{Batch: 3, MaxBytes: 1000, Expires: time.Minute}, func(some []*nats.Msg) { handed += len(some) })
			if c.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.err)
			}
			require.Equal(t, c.got, got)
			require.Equal(t, got, handed)
		})
	}
}

// A request ends with the connection, and hands on nothing of before the stream went back.
func TestPullEndsWithTheConnection(t *testing.T) {
	t.Parallel()
	s, p := newStream(t, 1, nil)
	p.says(next, func(*nats.Msg) []*nats.Msg {
		s.WentBack(0, 0, "a test")
		time.AfterFunc(10*time.Millisecond, func() { p.cut(t) })
		return []*nats.Msg{message("a job")}
	})
	_, err := s.Pull("c", PullRequest{Batch: 3, MaxBytes: 1000, Expires: time.Hour}, func([]*nats.Msg) { t.Error("a job of before") })
	require.NoError(t, err)
}

// A consumer whose server is silent is given up if it is gone, or was made anew; and it is removed, if the leader answers.
func TestConsumerOfASilentServer(t *testing.T) {
	t.Parallel()
	const consumer, remove = "$JS.API.CONSUMER.INFO.TW.c", "$JS.API.CONSUMER.DELETE.TW.c"
	for name, c := range map[string]struct {
		consumer, leader answer
		removed          bool
	}{
		"it is gone":           {consumer: refusal(codeNotFound, "consumer not found")},
		"it was made anew":     {consumer: exactly(message(`{"created":"2999-01-01T00:00:00Z"}`))},
		"its server is silent": {consumer: silence, leader: refusal(codeNotFound, "no message found"), removed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := newStream(t, 3, nil)
			p.says(next, silence)
			p.says(consumer, c.consumer)
			p.says(leader, c.leader)
			_, err := s.Pull("c", PullRequest{Batch: 3, MaxBytes: 1000}, func([]*nats.Msg) {})
			require.ErrorIs(t, err, ErrAbandoned)
			require.Equal(t, c.removed, len(p.questions(remove)) > 0)
		})
	}
}
