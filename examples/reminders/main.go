// Reminders keeps reminders that survive a crash, in a directory or on a NATS cluster.
//
//	reminders [-dir DIR | -nats URL [-replicas N]] COMMAND
//
//	add DELAY TEXT    prints the reminder's REF
//	list
//	cancel REF
//	run               shows each when it is due, until Ctrl-C; kill -9 it and start it again
//
// The directory, ./reminders-data by default, is one process's at a time: while run has it
// the other commands say that it is locked. With -nats they work beside any number of runs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/jetstream"
	"github.com/tickwheel/tickwheel/durable/jetstream/embedded"
)

const (
	kind  = "reminder"
	usage = `usage: reminders [-dir DIR | -nats URL [-replicas N]] COMMAND
  add DELAY TEXT
  list
  cancel REF
  run
`
)

var errUsage = errors.New("wrong command")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program, and returns its exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("reminders", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage) }
	dir := flags.String("dir", "reminders-data", "where they are kept")
	url := flags.String("nats", "", "a NATS server or cluster that keeps them instead")
	replicas := flags.Int("replicas", 1, "on how many servers of the cluster")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if *replicas < 1 {
		fmt.Fprint(stderr, usage)
		return 2
	}
	err := withQueue(ctx, *dir, *url, *replicas, func(q *durable.Queue) error {
		return command(ctx, q, flags.Args(), stdout)
	}, flags.Args())
	switch {
	case errors.Is(err, errUsage):
		fmt.Fprint(stderr, usage)
		return 2
	case err != nil:
		fmt.Fprintln(stderr, "reminders:", err)
		return 1
	}
	return 0
}

// withQueue opens what keeps the reminders, and closes it after f.
func withQueue(ctx context.Context, dir, url string, replicas int, f func(*durable.Queue) error, args []string) error {
	if !valid(args) {
		return errUsage
	}
	var e durable.Engine
	var err error
	if url == "" {
		e, err = embedded.Open(ctx, dir)
	} else {
		nc, connectErr := nats.Connect(url, nats.MaxReconnects(-1))
		if connectErr != nil {
			return fmt.Errorf("%s: %w", url, connectErr)
		}
		defer nc.Close()
		e, err = jetstream.Connect(ctx, nc, jetstream.Queue("reminders"), jetstream.Replicas(replicas))
	}
	if err != nil {
		return err
	}
	q, err := durable.Open(ctx, e)
	if err != nil {
		return errors.Join(err, e.Close())
	}
	return errors.Join(f(q), q.Close())
}

// valid tells whether the command is one, before anything is opened.
func valid(args []string) bool {
	if len(args) == 0 {
		return false
	}
	switch args[0] {
	case "add":
		return len(args) >= 3
	case "cancel":
		return len(args) == 2
	case "list", "run":
		return len(args) == 1
	}
	return false
}

func command(ctx context.Context, q *durable.Queue, args []string, stdout io.Writer) error {
	switch args[0] {
	case "add":
		return add(ctx, q, args[1], strings.Join(args[2:], " "), stdout)
	case "list":
		return list(ctx, q, stdout)
	case "cancel":
		return cancel(ctx, q, durable.Ref(args[1]), stdout)
	default:
		return remind(ctx, q, stdout)
	}
}

func add(ctx context.Context, q *durable.Queue, delay, text string, stdout io.Writer) error {
	after, err := time.ParseDuration(delay)
	if err != nil {
		return err
	}
	refs, err := q.Add(ctx, durable.Job{Kind: kind, After: after, Payload: []byte(text)})
	if err == nil {
		fmt.Fprintln(stdout, refs[0])
	}
	return err
}

func list(ctx context.Context, q *durable.Queue, stdout io.Writer) error {
	n := 0
	for i, err := range q.All(ctx, durable.Filter{Kind: kind}) {
		if err != nil {
			return err
		}
		n++
		fmt.Fprintf(stdout, "%s  %s  %v  %s\n", i.Ref, i.Due.Local().Format(time.DateTime), i.State, i.Job.Payload)
	}
	noun := "reminders"
	if n == 1 {
		noun = "reminder"
	}
	fmt.Fprintf(stdout, "%d %s\n", n, noun)
	return nil
}

func cancel(ctx context.Context, q *durable.Queue, ref durable.Ref, stdout io.Writer) error {
	ok, err := q.Cancel(ctx, ref)
	if err == nil && !ok {
		err = errors.New("too late, or canceled before")
	}
	if err == nil {
		fmt.Fprintln(stdout, "canceled")
	}
	return err
}

func remind(ctx context.Context, q *durable.Queue, stdout io.Writer) error {
	q.Handle(kind, func(_ context.Context, a *durable.Attempt) error {
		late := ""
		if d := time.Since(a.Due); d > time.Second {
			late = fmt.Sprintf(" (%v late)", d.Round(time.Second))
		}
		_, err := fmt.Fprintf(stdout, "%s  %s%s\n", time.Now().Format(time.TimeOnly), a.Job.Payload, late)
		return err
	})
	fmt.Fprintln(stdout, "waiting; Ctrl-C ends")
	return q.Run(ctx)
}
