package jetstream_test

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream"
)

// watched is a server that calls before, once, when a client is about to send what has a word.
type watched struct {
	natsServer
	word   string
	before func()
	once   sync.Once
}

func (s *watched) InProcessConn() (net.Conn, error) {
	c, err := s.natsServer.InProcessConn()
	return watchedConn{c, s}, err
}

type watchedConn struct {
	net.Conn
	s *watched
}

func (c watchedConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(c.s.word)) {
		c.s.once.Do(c.s.before)
	}
	return c.Conn.Write(b)
}

// A job that dies while somebody reads what became of it is found as dead: it was not among
// the dead when that was asked, and does not wait any more when that is.
func TestGetWhileItDies(t *testing.T) {
	t.Parallel()
	for name, moved := range map[string]bool{"at once": false, "after a retry": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			e := s.Open(t)
			w, err := e.Work(t.Context(), driver.WorkConfig{Name: "w", Kinds: driver.NewKindSet([]string{"k"}), Lease: time.Minute, Ahead: time.Second, Retention: time.Hour})
			require.NoError(t, err)
			now := time.Now().Truncate(time.Microsecond)
			refs, errs := e.Insert(t.Context(), []driver.Record{{ID: "x", Job: driver.Job{Kind: "k", At: now, MaxAttempts: 3}, Due: now, Born: now}})
			require.NoError(t, errs[0])
			h := claimOne(t, w)
			if moved {
				require.NoError(t, w.Finish(t.Context(), []driver.Completion{{Delivery: h, End: driver.Retry, At: now}})[0])
				h = claimOne(t, w)
			}
			srv := &watched{natsServer: s.srv, word: "DIRECT.GET.TW_default_0.TW_default_0.f.", before: func() {
				require.NoError(t, w.Finish(t.Context(), []driver.Completion{{Delivery: h, End: driver.DeadLetter, Error: "no"}})[0])
			}}
			nc, err := nats.Connect("", nats.InProcessServer(srv), nats.MaxReconnects(-1), nats.Timeout(time.Minute))
			require.NoError(t, err)
			defer nc.Close()
			other, err := jetstream.Connect(t.Context(), nc, s.opts...)
			require.NoError(t, err)
			defer other.Close()
			info, err := other.Get(t.Context(), refs[0])
			require.NoError(t, err)
			require.Equal(t, driver.Dead, info.State)
			require.Equal(t, "no", info.LastError)
		})
	}
}

// claimOne claims the job that is handed out.
func claimOne(t *testing.T, w driver.Worker) (h *driver.Delivery) {
	feeding, stop := context.WithCancel(t.Context())
	defer stop()
	require.NoError(t, w.Fetch(feeding, func(held []*driver.Delivery) { h = held[0]; stop() }))
	require.Eventually(t, func() bool { return w.Claim(t.Context(), []*driver.Delivery{h})[0].Status == driver.Granted }, patience, time.Millisecond)
	return h
}
