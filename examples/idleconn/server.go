package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// sampled is the share of Resets whose time is kept: one in this many.
const sampled = 16

// server echoes what connections send, and closes those that are idle.
type server struct {
	listener net.Listener
	wheel    *timingwheel.TimingWheel
	limit    time.Duration
	stderr   io.Writer
	ending   chan struct{}  // closed by stop
	running  sync.WaitGroup // accept, and a goroutine for each connection
	resets   atomic.Int64

	mu       sync.Mutex // guards what follows
	stopped  bool
	open     map[net.Conn]bool
	accepted int
	late     []time.Duration // of those closed for being idle
	took     []time.Duration // some of the Resets
}

// start starts a server, which takes the listener over. The wheel must run until the
// server has stopped.
func start(listener net.Listener, wheel *timingwheel.TimingWheel, limit time.Duration, stderr io.Writer) *server {
	s := &server{
		listener: listener,
		wheel:    wheel,
		limit:    limit,
		stderr:   stderr,
		ending:   make(chan struct{}),
		open:     map[net.Conn]bool{},
	}
	s.running.Go(s.accept)
	return s
}

// stop closes the listener and all connections, and waits until nothing of the server
// runs any more.
func (s *server) stop() {
	s.mu.Lock()
	s.stopped = true
	for conn := range s.open {
		conn.Close()
	}
	s.mu.Unlock()
	close(s.ending)
	s.listener.Close()
	s.running.Wait()
}

func (s *server) accept() {
	for {
		conn, err := s.listener.Accept()
		switch {
		case err == nil:
			s.welcome(conn)
		case errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE):
			fmt.Fprintln(s.stderr, "idleconn:", err)
			select {
			case <-time.After(100 * time.Millisecond): // others may be closed meanwhile
			case <-s.ending:
			}
		default:
			if !errors.Is(err, net.ErrClosed) {
				fmt.Fprintln(s.stderr, "idleconn:", err)
			}
			return
		}
	}
}

// welcome starts the goroutine of a connection, unless stop has closed the others.
func (s *server) welcome(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		conn.Close()
		return
	}
	c, err := newPeer(s, conn)
	if err != nil {
		fmt.Fprintln(s.stderr, "idleconn:", err)
		conn.Close()
		return
	}
	s.open[conn] = true
	s.accepted++
	s.running.Go(func() {
		c.echo()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, conn)
	})
}

// peer is a connection and the timeout that closes it.
type peer struct {
	server  *server
	conn    net.Conn
	timeout timingwheel.Timeout
	expired chan struct{} // closed when the timeout's function has done its work

	mu   sync.Mutex // held while last changes together with the timeout
	last time.Time  // when something was last read, or the connection accepted
}

func newPeer(s *server, conn net.Conn) (*peer, error) {
	c := &peer{server: s, conn: conn, expired: make(chan struct{}), last: time.Now()}
	var err error
	c.timeout, err = s.wheel.Schedule(s.limit, c.expire)
	return c, err
}

// echo sends back what it reads until the connection ends, on whichever side.
func (c *peer) echo() {
	defer c.end()
	buf := make([]byte, 512)
	for {
		n, err := c.conn.Read(buf)
		if err != nil || !c.pushBack() {
			return
		}
		// If the peer does not read, this blocks. Then nothing is read here either, and
		// the timer ends it.
		if _, err := c.conn.Write(buf[:n]); err != nil {
			return
		}
	}
}

// pushBack gives the connection another limit from now. It reports whether it came before
// the timeout did. If not, expire runs or is about to, and closes the connection.
func (c *peer) pushBack() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now() // before Reset reads the clock, so that the timeout fires at now+limit or later
	if !c.timeout.Reset(c.server.limit) {
		return false
	}
	took := time.Since(now)
	c.last = now
	if c.server.resets.Add(1)%sampled == 0 {
		c.server.keep(took)
	}
	return true
}

// expire is the timeout's function.
func (c *peer) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server.closed(time.Since(c.last) - c.server.limit)
	c.conn.Close()
	close(c.expired)
}

// end closes the connection and takes its timeout off the wheel. If the timeout has fired,
// end waits until its function has done its work. (Cancel would also return false on a
// stopped wheel, but the wheel outlives the server.)
func (c *peer) end() {
	c.conn.Close()
	if !c.timeout.Cancel() {
		<-c.expired
	}
}

func (s *server) closed(late time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late = append(s.late, late)
}

func (s *server) keep(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.took = append(s.took, took)
}
