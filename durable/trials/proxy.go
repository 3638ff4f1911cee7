//go:build unix

package main

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"
	"time"
)

// proxy is between clients and a server, and is what a network can be.
type proxy struct {
	url      string // for clients
	server   string
	listener net.Listener

	mu    sync.Mutex // guards links
	links map[*link]bool
}

// link is one connection.
type link struct {
	client, server *net.TCPConn

	mu   sync.Mutex // held while nothing passes
	dead bool       // nothing passes any more, and nobody is told
	part bool       // what the client sends next passes but for its end, and then it is dead
}

// useProxy puts a proxy before the server, for the processes that are started from now on.
// It stays until the end of all.
func (w *world) useProxy() *proxy {
	u := get(url.Parse(w.url()))
	p := &proxy{server: u.Host, listener: get(net.Listen("tcp", "127.0.0.1:0")), links: map[*link]bool{}}
	u.Host = p.listener.Addr().String()
	p.url = u.String()
	go p.serve()
	w.proxy, w.atEnd = p, append(w.atEnd, p.close)
	return p
}

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			client.Close()
			continue
		}
		l := &link{client: client.(*net.TCPConn), server: server.(*net.TCPConn)}
		p.mu.Lock()
		p.links[l] = true
		p.mu.Unlock()
		go p.pass(l, l.server, l.client)
		go p.pass(l, l.client, l.server)
	}
}

// pass copies what comes, until a side ends. Of a dead link the other side stays open and
// is told nothing.
func (p *proxy) pass(l *link, to, from *net.TCPConn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		l.mu.Lock()
		dead := l.dead
		if !dead && l.part && from == l.client && n > 1 {
			n -= 1 + rand.N(min(n-1, 5)) // of a transaction, only its end is missing
			l.dead = true
		}
		if !dead && n > 0 {
			_, writeErr := to.Write(buf[:n])
			err = errors.Join(err, writeErr)
		}
		l.mu.Unlock()
		if dead && err != nil {
			from.Close()
			return
		}
		if err != nil {
			p.drop(l)
			return
		}
	}
}

func (p *proxy) drop(l *link) {
	l.client.Close()
	l.server.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// some calls f for about one of n of the links that let something pass, and returns for
// how many.
func (p *proxy) some(n int, f func(*link)) int {
	var chosen []*link
	p.mu.Lock()
	for l := range p.links {
		if rand.N(n) == 0 && l.passes() {
			chosen = append(chosen, l)
		}
	}
	p.mu.Unlock()
	for _, l := range chosen {
		f(l)
	}
	return len(chosen)
}

func (l *link) passes() bool {
	if !l.mu.TryLock() {
		return false // it is held up
	}
	defer l.mu.Unlock()
	return !l.dead && !l.part
}

// cut ends a connection, in order or with a reset.
func (l *link) cut() {
	if rand.N(2) == 0 {
		l.client.SetLinger(0)
		l.server.SetLinger(0)
	}
	l.client.Close()
	l.server.Close()
}

// hold lets nothing pass for a while.
func (l *link) hold(d time.Duration) {
	l.mu.Lock()
	time.AfterFunc(d, l.mu.Unlock)
}

// halfOpen is for how long a server does not know that its client is gone. By itself TCP
// takes two hours; this is about what a server takes that has been told to ask.
const halfOpen = 45 * time.Second

// halve lets nothing pass any more, from now on or from the end of what is sent next.
func (l *link) halve() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = rand.N(2) == 0
	l.part = !l.dead
	time.AfterFunc(halfOpen, l.cut)
}

// sever lets nothing pass any more, and the client is never told. The server finds out, as
// one does that has been told to ask.
func (l *link) sever() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	time.AfterFunc(halfOpen, func() { l.server.Close() })
}

// close ends all connections.
func (p *proxy) close() {
	p.listener.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.client.Close()
		l.server.Close()
	}
}

// disturb has clients reach the server by way of a proxy that cuts connections, holds
// them up and leaves them half open. At the end the rest is run over connections of its
// own, while the server has those for a while.
func (w *world) disturb() {
	w.r.CheckTwice = false // a worker that is cut off for longer than its lease has lost it
	p := w.useProxy()
	w.startAll()
	w.until(3, func(n int) {
		pause(time.Second, time.Second)
		switch n % 3 {
		case 0:
			w.r.Provoked += p.some(2, (*link).cut)
		case 1:
			d := rand.N(2 * lease)
			w.r.Provoked += p.some(2, func(l *link) { l.hold(d) })
		default:
			w.r.Provoked += p.some(3, (*link).halve)
		}
	})
	w.proxy = nil
}

// sever makes all connections to the server swallow what is sent, again and again, as if the
// machine at the other end were gone. New ones pass. Each time all goes on.
func (w *world) sever() {
	w.r.CheckTwice = false // a worker without an answer for longer than its lease has lost it
	p := w.useProxy()
	w.spec.Ask = true
	w.startAll()
	w.until(2, func(int) {
		pause(2*time.Second, 4*time.Second)
		w.r.Provoked += p.some(1, (*link).sever)
		w.awaitGoingOn(func() {})
	})
	w.proxy = nil
}
