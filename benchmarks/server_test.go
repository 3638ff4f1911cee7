package main

import (
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkServer is a small server and 256 clients in the same process, over TCP on loopback.
// Each client sends a request of 64 bytes, waits for the answer, and sends the next. A message
// pushes the idle timer of its connection back to a minute, and a request has a timer of a
// second that is canceled when the answer is there. One request in ten gets no answer but
// that of its timer, after 20 ms. 10,000 quiet connections have idle timers beside that. CPU
// is the whole process's for each request: clients, kernel and runtime are in it. So its
// ratio is what a program would see.
func BenchmarkServer(b *testing.B) {
	clients, quiet := size(256, 4), size(10_000, 10)
	compare(b, pick(setup{}, ours+" heap"), func(b *testing.B, t timers) {
		// Of the timers, first come those of the requests, then idle ones, then quiet ones.
		t.keep(2*clients + quiet)
		for i := range clients + quiet {
			t.add(clients+i, time.Minute, noop)
		}
		listener := listen(b)
		var served sync.WaitGroup
		var accepted atomic.Int64
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				i := int(accepted.Add(1)-1) % clients
				served.Go(func() { answer(conn, t, i, clients+i) })
			}
		}()
		ask(b, listener, clients/runtime.GOMAXPROCS(0), string(make([]byte, messageLen)), messageLen)
		served.Wait() // before the next call has connections of the same numbers
	})
}

const messageLen = 64

// answer is the server's side of a connection, with the numbers of its timers.
func answer(conn net.Conn, t timers, request, idle int) {
	defer conn.Close()
	message := make([]byte, messageLen)
	reply := func() { _, _ = conn.Write(message) }
	for i := request; ; i++ {
		if _, err := io.ReadFull(conn, message); err != nil {
			return
		}
		t.reset(idle, time.Minute, noop)
		if i%10 == 0 {
			t.add(request, 20*time.Millisecond, reply)
			continue
		}
		t.add(request, time.Second, reply)
		t.cancel(request)
		reply()
	}
}

func listen(b *testing.B) net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { listener.Close() })
	return listener
}

// ask measures requests of so many clients for each of GOMAXPROCS. Each has a connection of
// its own, and does as little as it can.
func ask(b *testing.B, server net.Listener, clients int, request string, answerLen int) {
	conns := make([]net.Conn, max(clients, 1)*runtime.GOMAXPROCS(0))
	for i := range conns {
		conns[i] = dial(b, server)
		defer conns[i].Close()
	}
	parallel(b, max(clients, 1), func(g int) func() {
		message, answer := []byte(request), make([]byte, answerLen)
		return func() {
			if _, err := conns[g].Write(message); err != nil {
				b.Error(err)
			} else if _, err := io.ReadFull(conns[g], answer); err != nil {
				b.Error(err)
			}
		}
	})
}

func dial(b *testing.B, server net.Listener) net.Conn {
	conn, err := net.Dial("tcp", server.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	return conn
}

// BenchmarkConnDeadline pushes the deadline of an idle connection back to a minute from now: by
// SetReadDeadline of a net.Conn, or by a timer of the program's own. One of a hundred
// connections is chosen at random.
func BenchmarkConnDeadline(b *testing.B) {
	const n = 100
	conns := subject[timers]{"net.Conn", func(b *testing.B) timers { return deadlines{listen(b), make([]net.Conn, n), b} }}
	compare(b, append([]subject[timers]{conns}, pick(setup{}, ours)...), func(b *testing.B, t timers) {
		t.keep(n)
		for i := range n {
			t.add(i, time.Minute, noop)
		}
		r := random(n)
		loop(b, func() { t.reset(r.IntN(n), time.Minute, noop) })
	})
}

// deadlines are those of connections, which run no function.
type deadlines struct {
	server net.Listener
	conns  []net.Conn
	b      *testing.B
}

func (d deadlines) keep(int) {
	for i := range d.conns {
		d.conns[i] = dial(d.b, d.server)
		d.b.Cleanup(func() { d.conns[i].Close() })
	}
}

func (d deadlines) add(i int, after time.Duration, _ func()) {
	d.conns[i].SetReadDeadline(time.Now().Add(after))
}

func (d deadlines) reset(i int, after time.Duration, f func()) { d.add(i, after, f) }
func (d deadlines) cancel(i int)                               { d.conns[i].SetReadDeadline(time.Time{}) }
func (d deadlines) stop()                                      {}
