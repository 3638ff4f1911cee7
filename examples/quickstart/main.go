// Quickstart reads a list of reminders, lines of the form
//
//	delay message
//
// It schedules each on a timing wheel, prints each when it is due together with how late
// that was, and ends when all have been printed.
//
//	go run ./examples/quickstart            # a sample that is built in
//	go run ./examples/quickstart FILE       # lines from a file
//
// The delay is a duration as in "300ms", "1.5s" or "2h45m". A # starts a comment. A bad line
// is reported, the others run, and the exit status is 1. Ctrl-C prints how many have not run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/examples/internal/program"
	"github.com/tickwheel/tickwheel/timingwheel"
)

const sample = `# delay message
0s     start the day
250ms  boil the kettle
1.5s   buy milk
1s     water the plants
500ms  feed the cat   # she says it is urgent
`

func main() {
	program.Main(func(ctx context.Context, out io.Writer) error {
		text := []byte(sample)
		if name := flag.Arg(0); name != "" {
			var err error
			if text, err = os.ReadFile(name); err != nil {
				return err
			}
		}
		return remind(ctx, string(text), out)
	})
}

// remind schedules the reminders of a text, and returns when all were printed or ctx ends. It
// returns an error for bad lines.
func remind(ctx context.Context, text string, out io.Writer) (err error) {
	wheel := timingwheel.New()
	var mu sync.Mutex // keeps lines of output whole
	var pending sync.WaitGroup
	number := 0
	for line := range strings.Lines(text) {
		number++
		delay, message, bad := parse(line)
		if bad != nil {
			err = errors.Join(err, fmt.Errorf("line %d: %w", number, bad))
		}
		if message == "" {
			continue
		}
		due := time.Now().Add(delay)
		pending.Add(1)
		wheel.AfterFunc(delay, func() {
			defer pending.Done()
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintf(out, "%s  (%v late)\n", message, time.Since(due).Round(time.Microsecond))
		})
	}
	done := make(chan bool)
	go func() { pending.Wait(); close(done) }()
	select {
	case <-done:
		wheel.Stop()
	case <-ctx.Done():
		left := wheel.Stop() // what has not run never will
		pending.Add(-len(left))
		<-done // those that were running when the wheel stopped have written their lines
		fmt.Fprintln(out, "interrupted:", len(left), "have not run")
	}
	return errors.Join(err, ctx.Err())
}

// parse returns an empty message for a line without content, and for a bad one.
func parse(line string) (delay time.Duration, message string, err error) {
	line, _, _ = strings.Cut(line, "#")
	first, message, _ := strings.Cut(strings.TrimSpace(line), " ")
	if first == "" {
		return 0, "", nil
	}
	if delay, err = time.ParseDuration(first); err != nil {
		return 0, "", err
	}
	if message = strings.TrimSpace(message); message == "" {
		return 0, "", errors.New("no message after the delay")
	}
	return delay, message, nil
}
