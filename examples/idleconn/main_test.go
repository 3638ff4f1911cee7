package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// pipes is a listener without a network. So its connections follow the clock of a bubble.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Addr() net.Addr { return nil }
func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) dial() (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// bubble runs f with a server that is stopped afterwards, and must leave nothing on
// its wheel, and no goroutine.
func bubble(t *testing.T, limit time.Duration, f func(t *testing.T, s *server, dial func() (net.Conn, error))) {
	synctest.Test(t, func(t *testing.T) {
		wheel := timingwheel.New()
		defer wheel.Stop()
		listener := newPipes()
		s := start(listener, wheel, limit)
		f(t, s, listener.dial)
		s.stop()
		require.Zero(t, wheel.Len())
		require.Empty(t, s.open)
	})
}

func TestIdleConnectionIsClosedOnTime(t *testing.T) {
	bubble(t, 2*time.Second, func(t *testing.T, s *server, dial func() (net.Conn, error)) {
		start := time.Now()
		silent, err := dial()
		require.NoError(t, err)
		conn, err := dial()
		require.NoError(t, err)
		for range 5 {
			time.Sleep(1900 * time.Millisecond)
			require.NoError(t, say(conn, "x"))
		}
		_, err = conn.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err)
		require.Equal(t, 5*1900*time.Millisecond+2*time.Second, time.Since(start))
		_, err = silent.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err, "also one that has never said anything")
		synctest.Wait()
		require.Equal(t, 2, s.expired)
	})
}

// A message arrives in the very moment in which the timer fires. It finds the connection
// either open, and keeps it for another limit, or closed.
func TestMessageAtTheLastMoment(t *testing.T) {
	const limit = time.Second
	bubble(t, limit, func(t *testing.T, s *server, dial func() (net.Conn, error)) {
		var kept atomic.Int64
		var clients sync.WaitGroup
		for range 500 {
			conn, err := dial()
			require.NoError(t, err)
			synctest.Wait() // the timer runs from now, as the sleep does
			clients.Go(func() {
				start := time.Now()
				time.Sleep(limit)
				if say(conn, "wait") == nil {
					kept.Add(1)
					start = time.Now()
				}
				_, err := conn.Read(make([]byte, 1))
				require.Equal(t, io.EOF, err)
				require.Equal(t, limit, time.Since(start))
			})
		}
		clients.Wait()
		synctest.Wait()
		t.Log(kept.Load(), "of 500 came in time")
		require.Equal(t, 500, s.expired)
	})
}

func TestTimeoutThatFiredStaysOff(t *testing.T) {
	bubble(t, time.Second, func(t *testing.T, s *server, _ func() (net.Conn, error)) {
		conn, peer := net.Pipe()
		defer peer.Close()
		c := newPeer(s, conn)
		require.True(t, c.timeout.Reset(time.Second))
		time.Sleep(time.Second)
		<-c.closed
		require.False(t, c.timeout.Reset(time.Second))
		require.Zero(t, s.wheel.Len())
		c.end()
		require.Equal(t, 1, s.expired)
	})
}

func TestServerClosesItsEnd(t *testing.T) {
	bubble(t, time.Second, func(t *testing.T, s *server, _ func() (net.Conn, error)) {
		conn, peer := net.Pipe()
		peer.Close()
		newPeer(s, conn).echo()
		_, err := conn.Read(nil)
		require.Equal(t, io.ErrClosedPipe, err)
		require.Zero(t, s.expired)
	})
}

// All clients are closed on time, in the end those that have talked.
func TestFallSilent(t *testing.T) {
	bubble(t, time.Second, func(t *testing.T, s *server, dial func() (net.Conn, error)) {
		late, err := fallSilent(40, time.Second, dial)
		require.NoError(t, err)
		require.Equal(t, make([]time.Duration, 40), late)
		synctest.Wait()
		require.Equal(t, 40, s.expired)
	})
}

// The program, over real sockets. None is closed early however busy the machine is; one that is
// too busy to keep them talking closes some before they have said all.
func TestRun(t *testing.T) {
	keep(t, n)
	keep(t, idle)
	keep(t, addr)
	*n = 40
	var out bytes.Buffer
	var err error
	for _, *idle = range []time.Duration{300 * time.Millisecond, 2 * time.Second, 16 * time.Second} {
		if err = run(t.Context(), &out); err == nil {
			break
		}
		require.NotContains(t, err.Error(), "early")
	}
	require.NoError(t, err)
	require.Regexp(t, `closed late +[0-9]`, out.String())

	*n = 0
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.NoError(t, run(ctx, &out))
	*addr = "127.0.0.1:x"
	require.Error(t, run(ctx, &out))
}

// keep restores a flag when the test ends.
func keep[T any](t *testing.T, flag *T) {
	was := *flag
	t.Cleanup(func() { *flag = was })
}
