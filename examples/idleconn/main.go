// Idleconn is a TCP echo server that closes connections which have been idle for longer
// than a limit. Each connection has one timeout on a timing wheel, pushed back on every
// read. A client opens many connections, keeps some busy and lets the others idle, and
// says how late each was closed. Together they say what the timers cost.
//
//	go run ./examples/idleconn                    # both, in one process; some six seconds
//	go run ./examples/idleconn -addr :7000        # the server, until Ctrl-C
//	go run ./examples/idleconn -connect :7000     # the client, for a server that runs
//
// The flags -n, -busy and -for are the client's; -idle must be the same for both. Each
// end of a connection takes a descriptor. If the limit on open files is too low for -n
// connections, fewer are opened, and the program says so.
//
// The exit status is 0 if no connection was closed before its time, every idle one was
// closed, and every busy one was left alone; 1 if not; 2 for bad flags; and 130 after
// Ctrl-C (the server exits with 0 then, since Ctrl-C is its normal end).
//
// A net.Conn has SetReadDeadline: to give up on a silent peer needs no timer. A timer is
// for those who do more when it fires, as this server, which measures, and for what is
// not a net.Conn.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"time"

	"github.com/tickwheel/tickwheel/examples/internal/openfiles"
	"github.com/tickwheel/tickwheel/examples/internal/table"
	"github.com/tickwheel/tickwheel/timingwheel"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// settings are the flags.
type settings struct {
	addr, connect string
	n             int
	busy          float64
	idle, last    time.Duration
}

// run is the program. It returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	set, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2 // parse has said why
	}
	var problems []string
	switch {
	case set.addr != "":
		problems, err = serve(ctx, set, stdout, stderr)
	case set.connect != "":
		problems, err = connect(ctx, set, stdout)
	default:
		problems, err = both(ctx, set, stdout, stderr)
	}
	if err != nil {
		problems = append(problems, err.Error())
	}
	if ctx.Err() != nil && set.addr == "" {
		fmt.Fprintln(stderr, "idleconn: interrupted")
		return 130
	}
	for _, p := range problems {
		fmt.Fprintln(stderr, "idleconn:", p)
	}
	return min(len(problems), 1)
}

func parse(args []string, stderr io.Writer) (settings, error) {
	var set settings
	flags := flag.NewFlagSet("idleconn", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&set.addr, "addr", "", "only serve, on this `address`, until Ctrl-C")
	flags.StringVar(&set.connect, "connect", "", "only be the client, of the server at this `address`")
	flags.IntVar(&set.n, "n", 10_000, "`connections` to open")
	flags.Float64Var(&set.busy, "busy", 0.25, "`share` of the connections to keep busy, 0 to 1")
	flags.DurationVar(&set.idle, "idle", 2*time.Second, "limit after which the server closes an idle connection")
	flags.DurationVar(&set.last, "for", 4*time.Second, "time to go on for once all connections are open; more than -idle")
	if err := flags.Parse(args); err != nil {
		return set, err
	}
	var err error
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case set.addr != "" && set.connect != "":
		err = errors.New("-addr and -connect exclude each other; without either, one process is both")
	case set.idle <= 0:
		err = fmt.Errorf("-idle %v is not positive", set.idle)
	case set.n < 1:
		err = fmt.Errorf("-n %d is not positive", set.n)
	case !(set.busy >= 0 && set.busy <= 1): // and not NaN
		err = fmt.Errorf("-busy %v is not between 0 and 1", set.busy)
	case set.addr == "" && set.last <= set.idle:
		err = fmt.Errorf("-for %v leaves no time to see connections closed after -idle %v", set.last, set.idle)
	}
	if err != nil {
		fmt.Fprintln(stderr, "idleconn:", err)
		flags.Usage()
	}
	return set, err
}

// serve is the program with -addr.
func serve(ctx context.Context, set settings, stdout, stderr io.Writer) ([]string, error) {
	perTimer := bytesPerTimer()
	wheel := timingwheel.New()
	defer wheel.Stop()
	s, err := listen(set.addr, wheel, set.idle, stdout, stderr)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(stdout, "limit on open files is %d; Ctrl-C ends\n", openfiles.Limit())
	<-ctx.Done()
	s.stop()
	table.Heading(stdout)
	return s.report(stdout, perTimer), nil
}

// connect is the program with -connect.
func connect(ctx context.Context, set settings, stdout io.Writer) ([]string, error) {
	n, err := openfiles.Affordable(set.n, 1, openfiles.Limit(), stdout)
	if err != nil {
		return nil, err
	}
	c := &client{dial: dialer(set.connect), limit: set.idle, out: stdout}
	c.run(ctx, n, set.busy, set.last)
	c.count(set.last)
	table.Heading(stdout)
	return c.report(), nil
}

// both is the program without -addr or -connect.
func both(ctx context.Context, set settings, stdout, stderr io.Writer) ([]string, error) {
	n, err := openfiles.Affordable(set.n, 2, openfiles.Limit(), stdout)
	if err != nil {
		return nil, err
	}
	perTimer := bytesPerTimer()
	wheel := timingwheel.New()
	defer wheel.Stop()
	s, err := listen("127.0.0.1:0", wheel, set.idle, stdout, stderr)
	if err != nil {
		return nil, err
	}
	c := &client{dial: dialer(s.listener.Addr().String()), limit: set.idle, out: stdout}
	c.run(ctx, n, set.busy, set.last)
	s.stop()
	c.count(set.last)
	table.Heading(stdout)
	problems := c.report()
	return append(problems, s.report(stdout, perTimer)...), nil
}

// listen starts a server.
func listen(addr string, wheel *timingwheel.TimingWheel, limit time.Duration, stdout, stderr io.Writer) (*server, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(stdout, "serving on %v, closing what is idle for %v\n", listener.Addr(), limit)
	return start(listener, wheel, limit, stderr), nil
}

func dialer(addr string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr)
	}
}
