// Quickstart reads a list of reminders, lines of the form
//
//	delay message
//
// It schedules each on a timing wheel, prints each when it fires together with how late
// it was, and ends with a summary.
//
//	go run ./examples/quickstart            # a sample that is built in
//	go run ./examples/quickstart FILE       # lines from a file
//	go run ./examples/quickstart -          # lines from standard input
//
// The delay is a duration as in "300ms", "1.5s" or "2h45m". It counts from the moment at
// which the line is read. A # at the start of a line or of a word starts a comment. A bad
// line is reported, the good ones run, and the exit status is 1. Ctrl-C prints what has
// not run yet and exits with 130.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
)

const sample = `# delay message
0s     start the day
250ms  boil the kettle
1.5s   buy milk
1s     water the plants
500ms  feed the cat   # she says it is urgent
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the program. It returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	name, input := "sample", io.Reader(strings.NewReader(sample))
	switch {
	case len(args) > 1 || len(args) == 1 && strings.HasPrefix(args[0], "-") && args[0] != "-":
		fmt.Fprintln(stderr, "usage: quickstart [FILE | -]   with lines like: 1.5s buy milk")
		return 2
	case len(args) == 1 && args[0] == "-":
		name, input = "standard input", stdin
	case len(args) == 1:
		file, err := os.Open(args[0])
		if err != nil {
			fmt.Fprintln(stderr, "quickstart:", err)
			return 1
		}
		defer file.Close()
		name, input = args[0], file
	}

	list := newReminders(stdout)
	read := make(chan bool, 1)
	go func() { read <- list.read(name, input, stderr) }()
	status := 0
	for {
		select {
		case ok := <-read:
			if !ok {
				status = 1
			}
			list.allRead()
			read = nil // and wait for what was read
		case <-list.done:
			list.summary()
			return status
		case <-ctx.Done():
			list.interrupt()
			return 130
		}
	}
}
