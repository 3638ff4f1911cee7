package workload

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
	"github.com/tickwheel/tickwheel/benchmarks/internal/result"
	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
)

// server is what timers cost a program that does something else with them.
func server(size Size) Workload {
	l := serverLoad{
		connections: pick(size, 256, 256, 4),
		quiet:       pick(size, 10_000, 10_000, 10),
		requests:    pick(size, 1500, 150, 20),
	}
	const config = "load=requests"
	work := "a small server: CPU of a request, all included"
	return Workload{
		Name:  "Server",
		Title: "A small server",
		Shows: fmt.Sprintf("%d clients each send %s requests of %d bytes to a server in the same process, over "+
			"TCP on loopback, one after the other. Each message pushes the idle timer of its connection "+
			"back to 60 s from now, and each request has a timer of 1 s that is stopped when its answer is "+
			"there. One request in ten gets none: its timer of 20 ms fires, and answers. The idle timers of "+
			"%s quiet connections are pending beside that. CPU is gross, that of the whole process: the "+
			"clients, the kernel's part and the runtime's are in it, for all subjects. So its ratio is "+
			"what a program would see. The row of the subject none answers all requests at once.",
			l.connections, Count(l.requests), messageBytes, Count(l.quiet)),
		Rounds: pick(size, 5, 2, 1),
		Share:  pick(size, 100*time.Second, 16*time.Second, time.Second),
		Cases: []Case{{
			Name: config, Configs: []string{config},
			Timeout: 90 * time.Second,
			Without: inServer,
			Run: func(s subject.Subject, emit Emit) {
				l.run(s, config, emit)
			},
		}},
		Tables: []Table{{Caption: "requests with a timeout, and idle timers", Columns: []Column{
			{Head: "CPU ns a request (ratio)", Config: config, Unit: "cpu-ns/request", Ratio: true},
		}}},
		Headlines: []Headline{
			{Work: work, Subject: "wheel.AfterFunc", Config: config, Unit: "cpu-ns/request"},
			{Work: "the same with Schedule", Subject: "wheel.Schedule", Config: config, Unit: "cpu-ns/request"},
		},
	}
}

// inServer leaves out the rivals, and who runs tasks one by one: what fires here writes
// to a connection, and may block.
func inServer(s subject.Subject) string {
	if !slices.Contains([]string{subject.None, subject.Baseline, "wheel.AfterFunc", "wheel.Schedule", "heap"}, s.Name) {
		return NotHere
	}
	return ""
}

const messageBytes = 64

// lost is the first byte of a request that gets no answer but its timer's.
const lost = 1

// serverLoad is a server and its clients. Of the handles of its timers, those of the
// requests come first, then the idle ones, then those of quiet connections.
type serverLoad struct {
	connections, quiet, requests int // requests of each connection
}

func (l serverLoad) run(s subject.Subject, config string, emit Emit) {
	t := s.New(subject.Options{})
	t.Keep(2*l.connections + l.quiet)
	for i := range l.connections + l.quiet {
		t.Set(l.connections+i, time.Minute, noop)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fail("%v", err)
	}
	defer listener.Close()
	var fired atomic.Int64
	failed := make(chan error, 2*l.connections)
	clients := make([]net.Conn, l.connections)
	var served sync.WaitGroup
	for i := range clients {
		if clients[i], err = net.Dial("tcp", listener.Addr().String()); err != nil {
			fail("%v", err)
		}
		conn, err := listener.Accept()
		if err != nil {
			fail("%v", err)
		}
		h := &handler{timers: t, connection: conn, request: i, idle: l.connections + i, timeless: s.Name == subject.None, fired: &fired}
		served.Go(func() { failed <- h.serve() })
	}
	measure.Settle()
	before := measure.CPU()
	var done sync.WaitGroup
	for i, conn := range clients {
		done.Go(func() { failed <- l.ask(conn, i) })
	}
	done.Wait()
	after := measure.CPU()
	for _, conn := range clients {
		conn.Close()
	}
	served.Wait()
	close(failed)
	n := l.connections * l.requests
	if want := int64(n / 10); s.Name != subject.None {
		switch got := fired.Load(); {
		case got < want:
			fail("%d timers of requests fired, want %d", got, want)
		case got > want: // and the second answer may have broken a connection
			tooSlow("a request was not answered within a second")
		}
	}
	for err := range failed {
		if err != nil {
			fail("%v", err)
		}
	}
	emit(config, n, 2*l.connections+l.quiet,
		result.Value{Value: ns(after.CPU-before.CPU, n), Unit: "cpu-ns/request"})
	t.Stop()
}

// ask is a client. Each begins with another of ten requests, so that the lost ones are
// spread.
func (l serverLoad) ask(conn net.Conn, client int) error {
	message := make([]byte, messageBytes)
	for i := range l.requests {
		message[0] = 0
		if (client+i)%10 == 0 {
			message[0] = lost
		}
		if _, err := conn.Write(message); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, message); err != nil {
			return err
		}
	}
	return nil
}

// handler is the server's side of a connection.
type handler struct {
	timers        subject.Timers
	connection    net.Conn
	request, idle int // the numbers of its timers
	timeless      bool
	fired         *atomic.Int64
	late          [messageBytes]byte // the answer of a timer
}

func (h *handler) serve() error {
	defer h.connection.Close()
	message := make([]byte, messageBytes)
	giveUp := h.giveUp // a closure is made once, for all subjects
	for {
		if _, err := io.ReadFull(h.connection, message); err != nil {
			if errors.Is(err, io.EOF) {
				h.timers.Cancel(h.idle)
				return nil
			}
			return err
		}
		h.touch()
		if message[0] == lost && !h.timeless {
			h.timers.Set(h.request, 20*time.Millisecond, giveUp)
			continue
		}
		h.timers.Set(h.request, time.Second, giveUp)
		h.timers.Cancel(h.request)
		if _, err := h.connection.Write(message); err != nil {
			return err
		}
	}
}

// touch notes that there was a message.
func (h *handler) touch() {
	if h.timers.CanReset() {
		h.timers.Reset(h.idle, time.Minute)
		return
	}
	h.timers.Cancel(h.idle)
	h.timers.Set(h.idle, time.Minute, noop)
}

// giveUp answers a request for which there is nothing else. The client, who then gets no
// answer, reports what has gone wrong with the write.
func (h *handler) giveUp() {
	h.fired.Add(1)
	_, _ = h.connection.Write(h.late[:])
}
