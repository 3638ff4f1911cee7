// Longpoll is a message broker over HTTP whose readers wait for what is not there yet:
//
//	POST /topics/{topic}                     appends the body, answers with its offset
//	GET  /topics/{topic}?offset=0&wait=30s   answers with the messages from the offset on, as
//	                                         soon as there is one, or with 204 after the wait
//
// A poll that waits is parked in a purgatory, under its topic. Thousands of readers show
// what that is like, and the program says how late messages and expirations reached them.
//
//	go run ./examples/longpoll                # both, in one process; some fifteen seconds
//	go run ./examples/longpoll -addr :7000    # the broker, until Ctrl-C
//	curl -d hello localhost:7000/topics/news
//	curl 'localhost:7000/topics/news?offset=1&wait=10s'
//
// Each reader has a connection, which takes two descriptors in one process: where the
// limit on open files is too low for -n readers there are fewer, and the program says so.
// With -addr the other flags mean nothing.
//
// When the broker ends, those who wait are answered with 503. The exit status is 0 if
// every reader has received every message of its topic, no poll expired early, and
// nothing is left parked; 1 if not; 2 for bad flags; and 130 after Ctrl-C (with -addr,
// whose normal end that is, 0).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/examples/internal/openfiles"
	"github.com/tickwheel/tickwheel/timingwheel"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// settings are the flags.
type settings struct {
	addr       string
	n, topics  int
	rate       int
	wait, last time.Duration
}

// run is the program, and returns its exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	set, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2 // parse has said why
	}
	var problems []string
	if set.addr != "" {
		problems, err = serve(ctx, set.addr, stdout, stderr)
	} else {
		problems, err = both(ctx, set, stdout, stderr)
	}
	if err != nil {
		problems = append(problems, err.Error())
	}
	if ctx.Err() != nil && set.addr == "" {
		fmt.Fprintln(stderr, "longpoll: interrupted")
		return 130
	}
	for _, p := range problems {
		fmt.Fprintln(stderr, "longpoll:", p)
	}
	return min(len(problems), 1)
}

func parse(args []string, stderr io.Writer) (settings, error) {
	var set settings
	flags := flag.NewFlagSet("longpoll", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&set.addr, "addr", "", "only serve, on this `address`, until Ctrl-C")
	flags.IntVar(&set.n, "n", 10_000, "`readers`")
	flags.IntVar(&set.topics, "topics", 500, "`topics`; every other one gets messages")
	flags.IntVar(&set.rate, "rate", 50, "`messages` to post each second")
	flags.DurationVar(&set.wait, "wait", 8*time.Second, "how long a poll waits, at most")
	flags.DurationVar(&set.last, "for", 10*time.Second, "how long to post messages; more than -wait")
	if err := flags.Parse(args); err != nil {
		return set, err
	}
	var err error
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case min(set.n, set.topics, set.rate) < 1:
		err = errors.New("-n, -topics and -rate must be at least 1")
	case set.topics > maxTopics || set.rate > 1_000_000:
		err = fmt.Errorf("-topics can be %d at most, and -rate 1000000", maxTopics)
	case set.wait <= 0 || set.wait > maxWait:
		err = fmt.Errorf("-wait %v is not positive, or more than %v", set.wait, maxWait)
	case set.last <= set.wait:
		err = fmt.Errorf("-for %v leaves no time to see polls expire after -wait %v", set.last, set.wait)
	}
	if err != nil {
		fmt.Fprintln(stderr, "longpoll:", err)
		flags.Usage()
	}
	return set, err
}

// server is a broker that is being served.
type server struct {
	*broker
	wheel *timingwheel.TimingWheel
	http  *http.Server
	addr  net.Addr
	conns atomic.Int64 // accepted
	ended chan error   // what Serve has returned
}

func start(addr string, stdout, stderr io.Writer) (*server, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	wheel := timingwheel.New()
	s := &server{broker: newBroker(wheel), wheel: wheel, addr: listener.Addr(), ended: make(chan error, 1)}
	s.http = &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(stderr, "longpoll: ", 0),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				s.conns.Add(1)
			}
		},
	}
	go func() { s.ended <- s.http.Serve(listener) }()
	fmt.Fprintf(stdout, "serving on http://%v/topics/\n", s.addr)
	return s, nil
}

// stop answers those who wait, lets every request end, and returns what was not as
// promised.
func (s *server) stop() (problems []string) {
	s.parked.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		problems = append(problems, err.Error())
	}
	if left := s.parked.Stats().Pending; left > 0 {
		problems = append(problems, fmt.Sprintf("%d polls are left parked", left))
	}
	if left := s.wheel.Len(); left > 0 {
		problems = append(problems, fmt.Sprintf("%d deadlines are left on the wheel", left))
	}
	s.wheel.Stop()
	return problems
}

// serve is -addr.
func serve(ctx context.Context, addr string, stdout, stderr io.Writer) ([]string, error) {
	s, err := start(addr, stdout, stderr)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(stdout, "limit on open files is %d; Ctrl-C ends\n", openfiles.Limit())
	select {
	case <-ctx.Done():
	case err = <-s.ended:
	}
	waiting := s.parked.Stats().Pending
	problems := s.stop()
	fmt.Fprintf(stdout, "%d polls were waiting and have been answered\n", waiting)
	printStats(stdout, s.parked.Stats())
	return problems, err
}

// both is the program without -addr.
func both(ctx context.Context, set settings, stdout, stderr io.Writer) ([]string, error) {
	n, err := openfiles.Affordable(set.n, 2, openfiles.Limit(), stdout)
	if err != nil {
		return nil, err
	}
	goroutines := runtime.NumGoroutine()
	s, err := start("127.0.0.1:0", stdout, stderr)
	if err != nil {
		return nil, err
	}
	l := newLoad(fmt.Sprintf("http://%v/topics/", s.addr), n, set.topics, set.wait)
	reading := make(chan struct{})
	go func() { defer close(reading); l.read(context.Background()) }()
	await(ctx, func() bool { return s.conns.Load() >= int64(n) })
	await(ctx, func() bool { return s.parked.Stats().Pending >= int64(n)*9/10 }) // others are between two polls
	fmt.Fprintf(stdout, "%d readers wait, after %v; %d goroutines\n", s.parked.Stats().Pending, time.Since(l.start).Round(time.Millisecond), runtime.NumGoroutine())
	posting, cancel := context.WithTimeout(ctx, set.last)
	defer cancel()
	err = l.post(posting, set.topics, set.rate)
	await(ctx, l.isDelivered)
	s.parked.Close()
	<-reading // all have their answer, before connections are closed
	problems := s.stop()
	l.client.CloseIdleConnections()
	await(ctx, func() bool { return runtime.NumGoroutine() <= goroutines }) // those of connections take a moment
	problems = append(problems, l.report(stdout)...)
	printStats(stdout, s.parked.Stats())
	fmt.Fprintf(stdout, "%d goroutines at the start, %d at the end\n", goroutines, runtime.NumGoroutine())
	return problems, err
}

// await waits until something holds, but not for ever.
func await(ctx context.Context, holds func() bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for ctx.Err() == nil && !holds() {
		time.Sleep(time.Millisecond)
	}
}
