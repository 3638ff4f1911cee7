package workload

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
)

const (
	parentCancel = "op=cancel-parent"
	parentAll    = "op=cancel-parent-and-each"
	wholeServer  = "op=serve"
)

// parentCase is the end of a parent that many contexts have, as when a server is shut down.
func parentCase(size Size) (Case, Table) {
	n := pick(size, 100_000, 100_000, 100)
	c := Case{
		Name: "parent", Configs: []string{parentCancel, parentAll}, Timeout: 20 * time.Second,
		Without: only(subject.ContextMaker),
		Run:     func(s subject.Subject, emit Emit) { measureParent(s, n, emit) },
	}
	return c, Table{Caption: "one parent of " + Count(n) + ", CPU ns for each context (ratio)", Columns: []Column{
		{Head: "cancel of the parent", Config: parentCancel, Unit: "cpu-ns/op", Ratio: true},
		{Head: "and of each", Config: parentAll, Unit: "cpu-ns/op", Ratio: true},
	}}
}

// measureParent cancels a parent whose contexts have all been asked for Done: those that
// have not are nothing to the parent of a wheel's contexts.
func measureParent(s subject.Subject, n int, emit Emit) {
	t := s.New(subject.Options{}).(subject.Contexts)
	parent, cancelParent := context.WithCancel(context.Background())
	cancels := make([]context.CancelFunc, n)
	for i := range cancels {
		var ctx context.Context
		ctx, cancels[i] = t.WithTimeout(parent, time.Hour)
		ctx.Done()
	}
	measure.Settle()
	before := measure.Now()
	cancelParent()
	emit(parentCancel, n, n, perOp(before, measure.Now(), n)...)
	for _, cancel := range cancels {
		cancel()
	}
	emit(parentAll, n, n, perOp(before, measure.Now(), n)...)
}

// serverCase is a whole server, of which contexts are a small part.
func serverCase(size Size) (Case, Table) {
	spell := pick(size, 2*time.Second, time.Second, 10*time.Millisecond)
	c := Case{
		Name: "server", Configs: []string{wholeServer}, Timeout: 20 * time.Second,
		Without: only(subject.ContextMaker),
		Run:     func(s subject.Subject, emit Emit) { measureServer(s, spell, emit) },
	}
	return c, Table{Caption: "a whole HTTP server, CPU ns for each request (ratio)", Columns: []Column{
		{Head: "CPU", Config: wholeServer, Unit: "cpu-ns/op", Ratio: true},
		{Head: "allocs", Config: wholeServer, Unit: "allocs/op"},
	}}
}

func measureServer(s subject.Subject, spell time.Duration, emit Emit) {
	const clients = 8
	t := s.New(subject.Options{}).(subject.Contexts)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fail("%v", err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		ctx, cancel := t.WithTimeout(r.Context(), 5*time.Second)
		defer cancel()
		select {
		case <-ctx.Done():
		default:
			io.WriteString(rw, "ok")
		}
	})}
	go server.Serve(listener)
	defer server.Close()
	addr := listener.Addr().String()
	ask := func(int) func() { return asker(addr) }
	onEach(clients, spell/10, ask) // warm
	measure.Settle()
	before := measure.Now()
	n := onEach(clients, spell, ask)
	emit(wholeServer, n, clients, perOp(before, measure.Now(), n)...)
}

// asker returns a function that sends a request and reads the response, on a connection of
// its own that stays open. It does as little as it can: it is not what is measured.
func asker(addr string) func() {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		fail("%v", err)
	}
	in, request := bufio.NewReader(conn), []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	return func() {
		if _, err := conn.Write(request); err != nil {
			fail("%v", err)
		}
		for {
			line, err := in.ReadSlice('\n')
			if err != nil {
				fail("%v", err)
			}
			if len(line) == 2 { // the end of the header
				break
			}
		}
		if _, err := in.Discard(len("ok")); err != nil {
			fail("%v", err)
		}
	}
}
