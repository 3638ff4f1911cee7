//go:build unix

package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"
	"time"
)

// proxy is between clients and a server, or on a server's way to another. It is what a network can be.
type proxy struct {
	url    string // for clients
	port   int    // where it listens
	server string
	gate   sync.RWMutex // locked while nothing passes, on any link

	mu    sync.Mutex // guards links
	links []*link
}

// link is one connection.
type link struct {
	gate           *sync.RWMutex // of the proxy
	client, server *net.TCPConn

	mu    sync.Mutex // held while nothing passes
	state state
}

type state int

const (
	passing state = iota
	parting       // the next write of the client passes without its last bytes; then the link is dead
	dead          // nothing passes, and neither side gets an error
	closed        // on both sides
)

// useProxy puts a proxy before the server, for the processes that are started from now on.
func (w *world) useProxy() *proxy {
	u := get(url.Parse(w.url()))
	p := w.newProxy(u.Host)
	u.Host = fmt.Sprint("127.0.0.1:", p.port)
	p.url, w.proxy = u.String(), p
	return p
}

// newProxy puts a proxy before an address. It stays until the end of all.
func (w *world) newProxy(server string) *proxy {
	listener := get(net.Listen("tcp", "127.0.0.1:0"))
	p := &proxy{server: server, port: listener.Addr().(*net.TCPAddr).Port}
	go p.serve(listener)
	w.atEnd = append(w.atEnd, func() {
		listener.Close()
		p.some(1, (*link).cut)
	})
	return p
}

func (p *proxy) serve(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			client.Close()
			continue
		}
		l := &link{gate: &p.gate, client: client.(*net.TCPConn), server: server.(*net.TCPConn)}
		p.mu.Lock()
		p.links = append(p.links, l)
		p.mu.Unlock()
		go l.pass(l.server, l.client)
		go l.pass(l.client, l.server)
	}
}

// pass copies what comes, until a side ends. Of a dead link the other side stays open and
// is told nothing.
func (l *link) pass(to, from *net.TCPConn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		l.gate.RLock()
		l.mu.Lock()
		isDead := l.state == dead
		if l.state == parting && from == l.client && n > 1 {
			n -= 1 + rand.N(min(n-1, 5)) // of a transaction, only its end is missing
			l.state = dead
		}
		if !isDead && n > 0 {
			if _, writeErr := to.Write(buf[:n]); err == nil {
				err = writeErr
			}
		}
		l.mu.Unlock()
		l.gate.RUnlock()
		if isDead && err != nil {
			from.Close()
			return
		}
		if err != nil {
			l.close()
			return
		}
	}
}

func (l *link) close() {
	l.client.Close()
	l.server.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = closed
}

// some calls f for about one of n of the links that let something pass, and returns for
// how many.
func (p *proxy) some(n int, f func(*link)) (chosen int) {
	p.mu.Lock()
	links := p.links
	p.mu.Unlock()
	for _, l := range links {
		if rand.N(n) == 0 && l.passes() {
			f(l)
			chosen++
		}
	}
	return chosen
}

func (l *link) passes() bool {
	if !l.mu.TryLock() {
		return false // it is held up
	}
	defer l.mu.Unlock()
	return l.state == passing
}

// cut ends a connection, in order or with a reset.
func (l *link) cut() {
	if rand.N(2) == 0 {
		_ = l.client.SetLinger(0)
		_ = l.server.SetLinger(0)
	}
	l.client.Close()
	l.server.Close()
}

// hold lets nothing pass for a while.
func (l *link) hold(d time.Duration) {
	l.mu.Lock()
	time.AfterFunc(d, l.mu.Unlock)
}

// sever makes the link dead or parting. The client gets no error. The server's side is closed after 45 s, as keepalives
// would do it; by default these take two hours.
func (l *link) sever(how state) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = how
	time.AfterFunc(45*time.Second, func() { l.server.Close() })
}

// disturb has clients reach the server by way of a proxy that cuts connections, holds
// them up and leaves them half open. At the end the rest is run over connections of its
// own, while the server has those for a while.
func disturb(w *world) {
	w.r.twice = -1 // a worker that is cut off for longer than its lease has lost it
	p := w.useProxy()
	w.startAll()
	w.until(3, time.Second, time.Second, func(n int) {
		d := rand.N(2 * lease)
		harms := []func(*link){(*link).cut, func(l *link) { l.hold(d) }, func(l *link) { l.sever(parting + state(rand.N(2))) }}
		w.r.Happened += p.some(2, harms[n%3])
	})
	w.proxy = nil
}

// sever makes all connections to the server swallow what is sent, again and again, as if the
// machine at the other end were gone. New ones pass. Each time all goes on.
func sever(w *world) {
	w.r.twice = -1 // a worker without an answer for longer than its lease has lost it
	p := w.useProxy()
	w.spec.Ask = true
	w.startAll()
	w.until(2, 2*time.Second, 4*time.Second, func(int) {
		w.r.Happened += p.some(1, func(l *link) { l.sever(dead) })
		w.awaitGoingOn(func() {})
	})
	w.proxy = nil
}
