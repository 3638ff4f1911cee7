// Idleconn is a TCP echo server that closes connections which have been idle for longer
// than a limit. Each connection has one timeout on a timing wheel, pushed back on every
// read.
//
//	go run ./examples/idleconn                      # with clients that fall silent; some four seconds
//	go run ./examples/idleconn -n 0 -addr :7000     # the server alone, until Ctrl-C
//
// The clients print how late each was closed. The exit status is 1 if one was closed early.
// Each end of a connection takes a descriptor: the limit on open files bounds -n.
//
// A net.Conn has SetReadDeadline: to give up on a silent peer needs no timer. A timer is
// for a server that does more when it fires, and for anything that is not a net.Conn.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/examples/internal/program"
	"github.com/tickwheel/tickwheel/examples/internal/table"
	"github.com/tickwheel/tickwheel/timingwheel"
)

var (
	addr = flag.String("addr", "127.0.0.1:0", "`address` to serve on")
	n    = flag.Int("n", 2000, "`clients`; 0: the server alone")
	idle = flag.Duration("idle", 2*time.Second, "limit after which an idle connection is closed")
)

func main() { program.Main(run) }

func run(ctx context.Context, out io.Writer) error {
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	wheel := timingwheel.New()
	defer wheel.Stop()
	fmt.Fprintf(out, "serving on %v, closing what is idle for %v\n", listener.Addr(), *idle)
	s := start(listener, wheel, *idle)
	defer s.stop()
	if *n == 0 {
		<-ctx.Done()
		return nil
	}
	var d net.Dialer
	late, err := fallSilent(*n, *idle, func() (net.Conn, error) { return d.DialContext(ctx, "tcp", listener.Addr().String()) })
	if err := errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	table.Heading(out)
	table.Row(out, "closed late", late)
	fmt.Fprintln(out, wheel.Len(), "timeouts are left on the wheel")
	if slices.Min(late) < 0 {
		return fmt.Errorf("a connection was closed %v early", -slices.Min(late))
	}
	return nil
}

// fallSilent opens n connections. Every fourth talks for two limits, the others say one
// message, and then all are silent. It returns by how much the server closed each later than the
// limit after the last message.
func fallSilent(n int, limit time.Duration, dial func() (net.Conn, error)) ([]time.Duration, error) {
	late, errs := make([]time.Duration, n), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			conn, err := dial()
			if err != nil {
				errs[i] = err
				return
			}
			defer conn.Close()
			messages := 1
			if i%4 == 0 {
				messages = 11
			}
			var sent time.Time
			for m := range messages {
				if m > 0 {
					time.Sleep(limit / 5)
				}
				sent = time.Now()
				if err := say(conn, "still here"); err != nil {
					errs[i] = err
					return
				}
			}
			_, _ = conn.Read(make([]byte, 1)) // returns when the server closes the connection
			late[i] = time.Since(sent) - limit
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return late, nil
}

// say sends a message and waits until it comes back.
func say(conn net.Conn, message string) error {
	if _, err := io.WriteString(conn, message); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, len(message)))
	return err
}
