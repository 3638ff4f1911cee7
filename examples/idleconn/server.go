package main

import (
	"errors"
	"log"
	"net"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// server echoes what connections send, and closes those that are idle.
type server struct {
	listener net.Listener
	wheel    *timingwheel.TimingWheel
	limit    time.Duration
	running  sync.WaitGroup // accept, and a goroutine for each connection

	mu      sync.Mutex // guards what follows
	stopped bool
	open    map[net.Conn]bool
	expired int // connections that were closed for being idle
}

// start starts a server, which takes the listener over. The wheel must run until the
// server has stopped.
func start(listener net.Listener, wheel *timingwheel.TimingWheel, limit time.Duration) *server {
	s := &server{listener: listener, wheel: wheel, limit: limit, open: map[net.Conn]bool{}}
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
	s.listener.Close()
	s.running.Wait()
}

func (s *server) accept() {
	for {
		conn, err := s.listener.Accept()
		switch {
		case err == nil:
			s.welcome(conn)
		case errors.Is(err, net.ErrClosed):
			return
		default: // as if there are too many open files
			log.Print(err)
			time.Sleep(100 * time.Millisecond) // others may be closed meanwhile
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
	c := newPeer(s, conn)
	s.open[conn] = true
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
	closed  chan struct{} // by the timeout's function, when it has done its work
}

func newPeer(s *server, conn net.Conn) *peer {
	c := &peer{server: s, conn: conn, closed: make(chan struct{})}
	c.timeout, _ = s.wheel.Schedule(s.limit, c.expire) // the wheel is not stopped, and has no limit
	return c
}

// echo sends back what it reads until the connection ends, on whichever side.
func (c *peer) echo() {
	defer c.end()
	buf := make([]byte, 512)
	for {
		n, err := c.conn.Read(buf)
		// Reset returns false if the timeout came first. Then expire runs or is about to.
		if err != nil || !c.timeout.Reset(c.server.limit) {
			return
		}
		// If the peer does not read, this blocks. Then nothing is read here either, and
		// the timeout ends it.
		if _, err := c.conn.Write(buf[:n]); err != nil {
			return
		}
	}
}

// expire is the timeout's function.
func (c *peer) expire() {
	c.conn.Close()
	c.server.mu.Lock()
	c.server.expired++
	c.server.mu.Unlock()
	close(c.closed)
}

// end closes the connection and takes its timeout off the wheel. If the timeout has fired,
// end waits until its function has done its work.
func (c *peer) end() {
	c.conn.Close()
	if !c.timeout.Cancel() {
		<-c.closed
	}
}
