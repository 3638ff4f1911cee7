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
// takes a while, so it runs in a pool of few workers, "cleaning". While the pool is full, the driver
// waits for it, so the lateness of this wheel reaches half a second.
//
// Both wheels have a profile. The page links to it, and go tool pprof shows which line has armed
// what is pending:
//
//	go tool pprof -top -lines 'http://127.0.0.1:8377/debug/timingwheel/?format=profile&wheel=requests'
//
// It listens on loopback, so that nobody else sees the page; -addr changes that.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/examples/internal/program"
	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/debug"
	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

const (
	path     = "/debug/timingwheel/"
	profiled = 64 // one in so many adds
)

var (
	addr     = flag.String("addr", "127.0.0.1:8377", "`address` to listen on; its port 0 is a free one")
	rate     = flag.Int("rate", 2000, "timers scheduled a second")
	cancel   = flag.Float64("cancel", 0.5, "part of them that is canceled, from 0 to 1")
	duration = flag.Duration("duration", 0, "ends after this time; 0 means at Ctrl-C")
)

func main() { program.Main(run) }

// run serves the page and keeps the wheels busy until ctx ends.
func run(ctx context.Context, out io.Writer) error {
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if *duration > 0 {
		time.AfterFunc(*duration, stop)
	}
	requests := timingwheel.New(timingwheel.WithProfileRate(profiled))
	defer requests.Stop()
	workers := 1 + *rate/1000 // enough, except for the many that expire at the start
	cleaning := pool.New(workers, 4*workers, pool.Wait)
	defer cleaning.Close()
	sessions := timingwheel.New(timingwheel.WithTick(100*time.Millisecond), timingwheel.WithExecutor(cleaning), timingwheel.WithProfileRate(profiled))
	defer sessions.Stop()

	server := &http.Server{Handler: pages(requests, sessions, cleaning), ReadHeaderTimeout: 5 * time.Second}
	go server.Serve(listener) // until Close
	fmt.Fprintf(out, "open http://%s%s\n", listener.Addr(), path)

	var loads sync.WaitGroup
	loads.Go(func() { newLoad(requests, *rate, *cancel).run(ctx) })
	loads.Go(func() { pushBack(ctx, requests, *rate/4+1, func() {}) })
	loads.Go(func() { pushBack(ctx, sessions, *rate, clean) })
	<-ctx.Done()
	server.Close() // rather than Shutdown, which would wait for streams that never end
	loads.Wait()
	fmt.Fprintf(out, "left pending: %d requests, %d sessions\n", requests.Len(), sessions.Len())
	return nil
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
