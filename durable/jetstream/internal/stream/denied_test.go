package stream

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// stuck connects a client with a server. While it is locked the client's writes do not return.
type stuck struct {
	sync.RWMutex
	srv *server.Server
}

func (s *stuck) InProcessConn() (net.Conn, error) {
	c, err := s.srv.InProcessConn()
	return stuckConn{c, s}, err
}

type stuckConn struct {
	net.Conn
	stuck *stuck
}

func (c stuckConn) Write(b []byte) (int, error) {
	c.stuck.RLock()
	defer c.stuck.RUnlock()
	return c.Conn.Write(b)
}

// A write that is stuck holds the connection's lock, and holds up no caller, though all answers were denied before it.
// A denial that comes meanwhile holds up none either.
func TestDeniedWhileAWriteIsStuck(t *testing.T) {
	t.Parallel()
	_, p := newStream(t, 1, nil)
	s := &stuck{srv: p.srv}
	nc, err := nats.Connect("", nats.InProcessServer(s), nats.UserInfo("client", "x"), nats.MaxReconnects(-1), nats.Timeout(time.Minute))
	require.NoError(t, err)
	defer nc.Close()
	deaf := fmt.Errorf(`%w for Subscription to "_INBOX.x.*"`, nats.ErrPermissionViolation)
	for _, before := range []bool{true, false} {
		d := WatchDenials(nc)
		if before {
			d.report(deaf)
			ctx, stop := d.During(t.Context(), about("x"))
			select {
			case <-ctx.Done():
				require.True(t, IsDenial(Denied(ctx, ctx.Err())))
			case <-time.After(time.Minute):
				require.Fail(t, "the denial is forgotten")
			}
			stop()
		}
		func() {
			s.Lock()
			defer s.Unlock()
			go nc.Publish("x", make([]byte, 100<<10))
			time.Sleep(100 * time.Millisecond) // the connection's lock is held
			go d.report(deaf)
			time.Sleep(100 * time.Millisecond)
			done := make(chan bool)
			go func() {
				_, stop := d.During(t.Context(), about("x"))
				stop()
				close(done)
			}()
			select {
			case <-done:
			case <-time.After(time.Minute):
				t.Errorf("held up; deaf before: %v", before)
			}
		}()
	}
}
