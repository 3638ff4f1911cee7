// Live puts a load on two timing wheels and a pool, and serves the page of package
// timingwheel/debug, so that you can watch them at work.
//
//	go run ./examples/live                              # prints the address to open; until Ctrl-C
//	go run ./examples/live -rate 50000 -cancel 0.9      # more of it, most of which is canceled
//	go run ./examples/live -duration 30s                # ends by itself
//
// The wheel "requests" has timeouts of 5 ms to 8 minutes, a part of which is
// canceled on the way; messages for the next day; contexts, a ticker and a job; timers
// that are pushed back again and again; and every ten seconds a burst that is due all
// at once. The wheel "sessions" has a slower tick, and such timers only. Their function
// takes a while, so it runs in a pool of few workers, "cleaning".
//
// Both wheels have a profile. The page links to it, and go tool pprof shows which line has armed
// what is pending:
//
//	go tool pprof -top -lines 'http://127.0.0.1:8377/debug/timingwheel/?format=profile&wheel=requests'
//
// It listens on loopback, so that nobody else sees the page; -addr changes that. The
// exit status is 0 after -duration and after Ctrl-C, which is its normal end; 1 if it
// can not listen; and 2 for bad flags.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/debug"

	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

const (
	path        = "/debug/timingwheel/"
	defaultAddr = "127.0.0.1:8377"
	maxRate     = 1_000_000
	profiled    = 64 // one in so many adds
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// settings are the flags.
type settings struct {
	addr     string
	chosen   bool // addr is the user's, not the default
	rate     int
	cancel   float64
	duration time.Duration
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
	if set.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, set.duration)
		defer cancel()
	}
	if err := show(ctx, set, stdout); err != nil {
		fmt.Fprintln(stderr, "live:", err)
		return 1
	}
	return 0
}

func parse(args []string, stderr io.Writer) (set settings, err error) {
	flags := flag.NewFlagSet("live", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&set.addr, "addr", defaultAddr, "`address` to listen on; another port if that of the default is taken")
	flags.IntVar(&set.rate, "rate", 2000, "timers scheduled a second")
	flags.Float64Var(&set.cancel, "cancel", 0.5, "part of them that is canceled, from 0 to 1")
	flags.DurationVar(&set.duration, "duration", 0, "ends after this time; 0 means at Ctrl-C")
	if err := flags.Parse(args); err != nil {
		return set, err
	}
	flags.Visit(func(f *flag.Flag) { set.chosen = set.chosen || f.Name == "addr" })
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case set.rate < 1 || set.rate > maxRate:
		err = fmt.Errorf("-rate %d is not between 1 and %d", set.rate, maxRate)
	case !(set.cancel >= 0 && set.cancel <= 1): // NaN is not
		err = fmt.Errorf("-cancel %v is not between 0 and 1", set.cancel)
	case set.duration < 0:
		err = fmt.Errorf("-duration %v is negative", set.duration)
	}
	if err != nil {
		fmt.Fprintln(stderr, "live:", err)
		flags.Usage()
	}
	return set, err
}

// show serves the page and keeps the wheels busy until ctx ends.
func show(ctx context.Context, set settings, stdout io.Writer) error {
	listener, err := listen(set)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	requests := timingwheel.New(timingwheel.WithProfileRate(profiled))
	defer requests.Stop()
	workers := 1 + set.rate/1000 // enough, but for the many that expire at the start
	cleaning := pool.New(workers, 4*workers, pool.Wait)
	defer cleaning.Close()
	sessions := timingwheel.New(timingwheel.WithTick(100*time.Millisecond), timingwheel.WithExecutor(cleaning), timingwheel.WithProfileRate(profiled))
	defer sessions.Stop()

	server := &http.Server{Handler: pages(requests, sessions, cleaning), ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	fmt.Fprintf(stdout, "open http://%s%s\n", listener.Addr(), path)

	var loads sync.WaitGroup
	loads.Go(func() { newLoad(requests, set.rate, set.cancel).run(ctx) })
	loads.Go(func() { pushBack(ctx, requests, set.rate/4+1, func() {}) })
	loads.Go(func() { pushBack(ctx, sessions, set.rate, clean) })
	select {
	case <-ctx.Done():
		server.Close() // rather than Shutdown, which would wait for streams that never end
	case err = <-ended:
		cancel()
	}
	loads.Wait()
	fmt.Fprintf(stdout, "left pending: %d requests, %d sessions\n", requests.Len(), sessions.Len())
	return err
}

// listen takes another port when that of the default is taken, but not when the user
// has asked for it.
func listen(set settings) (net.Listener, error) {
	listener, err := net.Listen("tcp", set.addr)
	if errors.Is(err, syscall.EADDRINUSE) && !set.chosen {
		return net.Listen("tcp", "127.0.0.1:0")
	}
	return listener, err
}

func pages(requests, sessions *timingwheel.TimingWheel, cleaning *pool.Pool) http.Handler {
	page := debug.NewHandler()
	page.Add("requests", requests)
	page.Add("sessions", sessions)
	page.AddPool("cleaning", cleaning)
	mux := http.NewServeMux()
	mux.Handle(path, page)
	mux.Handle("/{$}", http.RedirectHandler(path, http.StatusFound))
	return mux
}
