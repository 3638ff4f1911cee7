package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/tickwheel/tickwheel/examples/internal/table"
)

// atOnce is how many connections are being opened at a time. It is well below the length
// of a listener's queue: what finds that full tries again only after a second.
const atOnce = 128

// client opens connections to the server, keeps some busy, lets the others idle, and
// watches which are closed.
type client struct {
	dial  func(context.Context) (net.Conn, error)
	limit time.Duration // the server's
	out   io.Writer
	conns []*connection
}

// connection is what became of one.
type connection struct {
	limit  time.Duration
	busy   bool
	failed error         // why it could not be opened
	sent   time.Time     // when the last message that came back was sent
	closed bool          // by the server
	silent time.Duration // from sent until it was closed, or the end
	stall  time.Duration // by how much a sleep of package time was late, at most
}

// run opens n connections, busy and idle ones mixed. It closes them once all have been
// open for the time last, or none is open any more.
func (c *client) run(ctx context.Context, n int, busy float64, last time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	start := time.Now()
	var opening, living sync.WaitGroup
	opening.Add(n)
	slots := make(chan struct{}, atOnce)
	for i := range n {
		conn := &connection{limit: c.limit, busy: int(float64(i+1)*busy) > int(float64(i)*busy)}
		c.conns = append(c.conns, conn)
		slots <- struct{}{}
		living.Go(func() {
			conn.live(ctx, c.dial, func() { <-slots; opening.Done() })
		})
	}
	opening.Wait()
	if opened := c.opened(); opened > 0 {
		fmt.Fprintf(c.out, "opened %d connections in %v\n", opened, table.Short(time.Since(start)))
		go func() { living.Wait(); cancel() }()
		pause(ctx, last)
	}
	cancel()
	living.Wait()
}

func (c *client) opened() (n int) {
	for _, conn := range c.conns {
		if conn.failed == nil {
			n++
		}
	}
	return n
}

// live is the life of a connection. It calls opened when the first message has come back,
// or it has failed.
func (c *connection) live(ctx context.Context, dial func(context.Context) (net.Conn, error), opened func()) {
	conn, err := dial(ctx)
	if err != nil {
		c.failed = explain(err)
		opened()
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	c.failed = c.say(conn, "hello")
	opened()
	switch {
	case c.failed != nil:
		return
	case c.busy:
		err = c.chat(ctx, conn)
	default:
		_, err = conn.Read(make([]byte, 1))
	}
	c.closed = !errors.Is(err, os.ErrDeadlineExceeded)
	c.silent = time.Since(c.sent)
}

// chat keeps the connection busy until the connection fails.
func (c *connection) chat(ctx context.Context, conn net.Conn) error {
	for {
		asleep := time.Now()
		pause(ctx, c.limit/5)
		c.stall = max(c.stall, time.Since(asleep)-c.limit/5)
		if err := c.say(conn, "still here"); err != nil {
			return err
		}
	}
}

// say sends a message and waits until it comes back.
func (c *connection) say(conn net.Conn, message string) error {
	now := time.Now() // before the server can have read it
	if _, err := io.WriteString(conn, message); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, make([]byte, len(message))); err != nil {
		return err
	}
	c.sent = now
	return nil
}

// explain adds to an error what is not clear from it.
func explain(err error) error {
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		return fmt.Errorf("%w (all local ports to that address are taken: try a smaller -n)", err)
	}
	return err
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
