package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
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

func (p *pipes) dial(context.Context) (net.Conn, error) {
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
func bubble(t *testing.T, limit time.Duration, f func(t *testing.T, s *server, dial func(context.Context) (net.Conn, error))) {
	synctest.Test(t, func(t *testing.T) {
		wheel := timingwheel.New()
		defer wheel.Stop()
		listener := newPipes()
		s := start(listener, wheel, limit, t.Output())
		f(t, s, listener.dial)
		s.stop()
		require.Zero(t, wheel.Len())
		require.Empty(t, s.open)
	})
}

func TestIdleConnectionIsClosedOnTime(t *testing.T) {
	bubble(t, 2*time.Second, func(t *testing.T, s *server, dial func(context.Context) (net.Conn, error)) {
		start := time.Now()
		silent, err := dial(t.Context())
		require.NoError(t, err)
		conn, err := dial(t.Context())
		require.NoError(t, err)
		var c connection
		for range 5 {
			time.Sleep(1900 * time.Millisecond)
			require.NoError(t, c.say(conn, "x"))
		}
		_, err = conn.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err)
		require.Equal(t, 5*1900*time.Millisecond+2*time.Second, time.Since(start))
		_, err = silent.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err, "also one that has never said anything")
		synctest.Wait()
		require.Equal(t, []time.Duration{0, 0}, s.late)
		require.EqualValues(t, 5, s.resets.Load())
	})
}

// A message arrives in the very moment in which the timer fires. It finds the connection
// either open, and keeps it for another limit, or closed.
func TestMessageAtTheLastMoment(t *testing.T) {
	const limit = time.Second
	bubble(t, limit, func(t *testing.T, s *server, dial func(context.Context) (net.Conn, error)) {
		var kept atomic.Int64
		var clients sync.WaitGroup
		for range 500 {
			conn, err := dial(t.Context())
			require.NoError(t, err)
			synctest.Wait() // the timer runs from now, as the sleep does
			clients.Go(func() {
				start := time.Now()
				time.Sleep(limit)
				if new(connection).say(conn, "wait") == nil {
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
		require.Len(t, s.late, 500)
		require.Equal(t, make([]time.Duration, 500), s.late)
		require.Equal(t, kept.Load(), s.resets.Load())
	})
}

func TestTimeoutThatFiredStaysOff(t *testing.T) {
	bubble(t, time.Second, func(t *testing.T, s *server, _ func(context.Context) (net.Conn, error)) {
		conn, peer := net.Pipe()
		defer peer.Close()
		c, err := newPeer(s, conn)
		require.NoError(t, err)
		require.True(t, c.pushBack())
		time.Sleep(time.Second)
		<-c.expired
		require.False(t, c.pushBack())
		require.Zero(t, s.wheel.Len())
		c.end()
		require.Equal(t, []time.Duration{0}, s.late)
	})
}

func TestServerClosesItsEnd(t *testing.T) {
	bubble(t, time.Second, func(t *testing.T, s *server, _ func(context.Context) (net.Conn, error)) {
		conn, peer := net.Pipe()
		peer.Close()
		c, err := newPeer(s, conn)
		require.NoError(t, err)
		c.echo()
		_, err = conn.Read(nil)
		require.Equal(t, io.ErrClosedPipe, err)
	})
}

// The client's account of a server that keeps its promise, and of two that do not.
func TestClientTells(t *testing.T) {
	for _, test := range []struct {
		agreed           time.Duration
		idle, busy, want string
	}{
		{agreed: time.Second, idle: "30        30         0", busy: "10         0        10"},
		{agreed: 1200 * time.Millisecond, idle: "30        30         0", busy: "10         0        10", want: "30 of 40 connections were closed early"},
		{agreed: 500 * time.Millisecond, idle: "30         0        30", busy: "10         0        10", want: "30 of 40 connections were idle, and not closed"},
	} {
		bubble(t, time.Second, func(t *testing.T, s *server, dial func(context.Context) (net.Conn, error)) {
			var out bytes.Buffer
			c := &client{dial: dial, limit: test.agreed, out: &out}
			last := test.agreed * 9 / 5
			c.run(t.Context(), 40, 0.25, last)
			c.count(last)
			problems := c.report()
			synctest.Wait() // for the server's ends
			require.Contains(t, out.String(), "opened 40 connections in ")
			require.Contains(t, out.String(), test.idle)
			require.Contains(t, out.String(), test.busy)
			require.Equal(t, test.want, strings.Join(problems, "\n"))
			require.Empty(t, s.report(&out, 80))
			require.Contains(t, out.String(), "0 timers left")
		})
	}
}

// A busy connection that is closed all the same, because it was held up.
func TestClientTellsOfTheDisturbed(t *testing.T) {
	var out bytes.Buffer
	c := &client{limit: time.Second, out: &out, conns: []*connection{{busy: true, closed: true, silent: time.Second}}}
	require.Equal(t, []string{"1 of 1 connections were closed though busy, none early: this machine was too slow to keep them busy"}, c.report())

	left := &connection{silent: 3 * time.Second}
	c.conns = []*connection{left, {busy: true, stall: 501 * time.Millisecond}}
	require.Equal(t, []string{"1 of 2 connections were idle, and not closed: this machine was too slow, where a sleep of package time took 501ms longer"}, c.report())
	c.conns[1].stall = 500 * time.Millisecond
	require.Equal(t, []string{"1 of 2 connections were idle, and not closed"}, c.report())
}

// The program itself, over real sockets. On a machine that is too busy to keep
// connections busy, a longer limit must do.
func TestBoth(t *testing.T) {
	before := runtime.NumGoroutine()
	for _, seconds := range []time.Duration{1, 4, 16} {
		var out, errs bytes.Buffer
		idle := seconds * time.Second / 2
		status := run(t.Context(), []string{"-n", "200", "-idle", idle.String(), "-for", (2 * idle).String()}, &out, &errs)
		t.Log(out.String(), errs.String())
		require.NotContains(t, errs.String(), "early\n")
		if status != 0 && seconds < 16 {
			continue
		}
		require.Empty(t, errs.String())
		require.Zero(t, status)
		require.Contains(t, out.String(), "opened 200 connections in ")
		require.Contains(t, out.String(), "busy                                  50         0        50\n")
		require.Contains(t, out.String(), "idle                                 150       150         0\n")
		require.Contains(t, out.String(), "200 connections accepted, 150 closed for being idle, 0 timers left on the wheel.\n")
		break
	}
	noMoreGoroutines(t, before)
}

// noMoreGoroutines waits until there are at most so many: those of a wheel that has
// been stopped take a moment to end. (Eventually would count its own.)
func noMoreGoroutines(t *testing.T, most int) {
	for patience := time.Now().Add(30 * time.Second); runtime.NumGoroutine() > most; time.Sleep(time.Millisecond) {
		if time.Now().After(patience) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("more than %d goroutines:\n%s", most, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// Server and client as two programs, but in one process. On a machine that is too busy to
// say the first message in time, a longer limit must do.
func TestServeAndConnect(t *testing.T) {
	for _, idle := range []string{"1s", "4s", "16s"} {
		if serveAndConnect(t, idle) {
			return
		}
	}
	t.Error("connections could not be opened")
}

// serveAndConnect reports false if the server has closed connections that were just being
// opened.
func serveAndConnect(t *testing.T, idle string) bool {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out, stdout := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"-addr", "127.0.0.1:0", "-idle", idle}, stdout, t.Output())
		stdout.Close()
	}()
	lines := bufio.NewReader(out)
	addr := address(t, lines)
	rest := make(chan string)
	go func() {
		all, _ := io.ReadAll(lines)
		rest <- string(all)
	}()

	open, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer open.Close()
	var client, errs bytes.Buffer
	args := []string{"-connect", addr, "-n", "20", "-busy", "0", "-idle", idle, "-for", "1h"}
	status := run(t.Context(), args, &client, &errs) // before the hour is over
	if strings.Contains(errs.String(), "could not be opened") {
		t.Log(errs.String())
		interrupt()
		<-rest
		return false
	}
	require.Zero(t, status, "%v", &errs)
	require.Contains(t, client.String(), "idle                                  20        20         0\n")
	require.Contains(t, client.String(), "closed late, client's view")
	require.NotContains(t, client.String(), "Reset")

	last, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer last.Close()
	interrupt()
	require.Zero(t, <-ended)
	_, err = last.Read(make([]byte, 1))
	require.Error(t, err)
	require.Contains(t, <-rest, "closed for being idle, 0 timers left on the wheel.\n")
	return true
}

// address reads the line in which a server says where it is.
func address(t *testing.T, lines *bufio.Reader) string {
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	addr, ok := strings.CutPrefix(line, "serving on ")
	require.True(t, ok, line)
	return strings.Split(addr, ",")[0]
}

// The real program and a real signal, with a connection open.
func TestCtrlC(t *testing.T) {
	if os.Getenv("IDLECONN_MAIN") != "" {
		os.Args = []string{"idleconn", "-addr", "127.0.0.1:0", "-idle", "1h"}
		main()
	}
	if runtime.GOOS == "windows" {
		t.Skip("there is no way to send an interrupt")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestCtrlC$")
	cmd.Env = append(os.Environ(), "IDLECONN_MAIN=1")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewReader(stdout)
	conn, err := net.Dial("tcp", address(t, lines))
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, new(connection).say(conn, "hello"))
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	_, err = conn.Read(make([]byte, 1))
	require.Equal(t, io.EOF, err)
	rest, err := io.ReadAll(lines)
	require.NoError(t, err)
	require.Contains(t, string(rest), "1 connections accepted, 0 closed for being idle, 0 timers left on the wheel.\n1 Resets")
	require.NoError(t, cmd.Wait())
}

func TestInterrupt(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, interrupt)
	var out, errs bytes.Buffer
	require.Equal(t, 130, run(ctx, []string{"-n", "20", "-idle", "1h", "-for", "2h"}, &out, &errs))
	require.Equal(t, "idleconn: interrupted\n", errs.String())
}

func TestNobodyThere(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	addr := listener.Addr().String()

	var out, errs bytes.Buffer
	require.Equal(t, 1, run(t.Context(), []string{"-addr", addr}, &out, &errs))
	require.Contains(t, errs.String(), "address already in use")

	out.Reset()
	errs.Reset()
	const nobody = "127.0.0.1:1" // a port that the system gives to no listener
	require.Equal(t, 1, run(t.Context(), []string{"-connect", nobody, "-n", "5"}, &out, &errs))
	require.Contains(t, errs.String(), "idleconn: 5 of 5 connections could not be opened: dial tcp "+nobody)
	require.NotContains(t, out.String(), "opened 5")
}

func TestUsage(t *testing.T) {
	for args, want := range map[string]string{
		"-x":                   "flag provided but not defined",
		"-n many":              "invalid value",
		"-n 0":                 "-n 0 is not positive",
		"-idle 0s":             "-idle 0s is not positive",
		"-idle 1s -for 1s":     "no time",
		"-busy 1.5":            "-busy 1.5 is not between 0 and 1",
		"-busy NaN":            "not between",
		"-addr :0 -connect :1": "exclude each other",
		"file":                 `unexpected argument "file"`,
	} {
		var out, errs bytes.Buffer
		require.Equal(t, 2, run(t.Context(), strings.Fields(args), &out, &errs), args)
		require.Contains(t, errs.String(), want)
		require.Contains(t, errs.String(), "Usage of idleconn:")
		require.Empty(t, out.String())
	}
	require.Zero(t, run(t.Context(), []string{"-h"}, io.Discard, io.Discard))
}
