// Profile shows which line of a program holds its timers. It keeps connections, each with a
// timer, and answers requests, each with a deadline. The handler of requests has a leak: it
// forgets a timer. The program has its timers on the wheel by a change of two imports, and writes
// the profile of that wheel:
//
//	go run ./examples/profile -o timers.pb.gz
//	go tool pprof -top -lines timers.pb.gz
//
// The exit status is 1 if the file cannot be written, and 2 for bad flags.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/tickwheel/tickwheel/dropin/context"
	"github.com/tickwheel/tickwheel/dropin/time"
	"github.com/tickwheel/tickwheel/timingwheel"
)

func main() {
	path := flag.String("o", "timers.pb.gz", "`file` for the profile")
	requests := flag.Int("n", 100_000, "`requests` to answer")
	flag.Parse()
	timingwheel.SetDefault(timingwheel.New(timingwheel.WithProfileRate(64)))
	if err := run(*path, *requests); err != nil {
		fmt.Fprintln(os.Stderr, "profile:", err)
		os.Exit(1)
	}
}

// run keeps a connection for each ten requests, and answers the requests.
func run(path string, requests int) error {
	for i := range requests {
		if i%10 == 0 {
			keep()
		}
		answer(context.Background())
	}
	fmt.Printf("%d are pending\n", timingwheel.Default().Len())
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(timingwheel.Default().WriteProfile(out), out.Close())
}

// keep keeps a connection, which is closed when it has been idle for two minutes.
func keep() { time.AfterFunc(2*time.Minute, func() {}) }

// answer answers a request.
func answer(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	done := make(chan bool, 1)
	done <- true
	select {
	case <-done:
	case <-ctx.Done():
	case <-time.NewTimer(time.Hour).C: // the leak: nobody stops it
	}
}
