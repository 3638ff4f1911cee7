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

// newProxy returns a proxy before the server of an address.
func newProxy(address string) (*proxy, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{server: u.Host, listener: l, links: map[*link]bool{}}
	u.Host = l.Addr().String()
	p.url = u.String()
	go p.serve()
	return p, nil
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

func (w *world) closeProxy() {
	if w.broken != nil {
		w.broken.close()
	}
}

// disturb has clients reach the server by way of a proxy that cuts connections, holds
// them up and leaves them half open. At the end the rest is run over connections of its
// own, while the server has those for a while.
func (w *world) disturb(end time.Time) error {
	w.r.CheckTwice = false // who is cut off for longer than the lease has lost it
	p, err := newProxy(w.url())
	if err != nil {
		return err
	}
	w.broken, w.proxy = p, p
	defer func() { w.proxy = nil }()
	if err := w.startAll(); err != nil {
		return err
	}
	for n := 0; n < 3 || time.Now().Before(end); n++ {
		time.Sleep(time.Second + rand.N(time.Second))
		switch {
		case n%3 == 0:
			w.r.Provoked += p.some(2, (*link).cut)
		case n%3 == 1:
			d := rand.N(2 * w.lease)
			w.r.Provoked += p.some(2, func(l *link) { l.hold(d) })
		default:
			w.r.Provoked += p.some(3, (*link).halve)
		}
	}
	return nil
}

// sever has all connections to the server swallow what is sent, again and again, as if the
// machine at the other end were gone. New ones pass. Each time all goes on.
func (w *world) sever(end time.Time) error {
	w.r.CheckTwice = false // who has no answer for longer than the lease has lost it
	p, err := newProxy(w.url())
	if err != nil {
		return err
	}
	w.broken, w.proxy = p, p
	defer func() { w.proxy = nil }()
	w.env = []string{envAsk + "=yes"}
	if err := w.startAll(); err != nil {
		return err
	}
	for n := 0; n < 2 || time.Now().Before(end); n++ {
		time.Sleep(2*time.Second + rand.N(4*time.Second))
		w.r.Provoked += p.some(1, (*link).sever)
		if err := w.awaitGoingOn(func() error { return nil }); err != nil {
			return err
		}
	}
	return nil
}
