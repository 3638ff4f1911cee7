// Command twjobs shows the jobs of a queue and changes them.
//
//	twjobs -dir DIR | -nats URL [-queue NAME] [-partitions N] COMMAND
//
//	list [-state waiting|running|dead] [-kind KIND] [-n 100]   a line for each job
//	show REF          all of one, its payload included
//	cancel REF...     canceled, or not: it runs, or has ended
//	cancel -key KEY
//	redrive REF...    has dead jobs run again
//	redrive -all [-kind KIND]
//	stats             how many there are of each kind and state; it reads all of the store
//
// A directory can be opened only while no process has it. The exit status is 1 if
// something failed or was not done, 2 for a wrong command.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/jetstream"
	"github.com/tickwheel/tickwheel/durable/jetstream/embedded"
)

const usage = `usage: twjobs -dir DIR | -nats URL [-queue NAME] [-partitions N] COMMAND
  list [-state waiting|running|dead] [-kind KIND] [-n 100]
  show REF
  cancel REF... | cancel -key KEY
  redrive REF... | redrive -all [-kind KIND]
  stats
`

var errUsage = errors.New("wrong command")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program, and returns its exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	err := try(ctx, args, stdout, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		fmt.Fprint(stderr, usage)
		return 2
	case err != nil:
		fmt.Fprintln(stderr, "twjobs:", err)
		return 1
	}
	return 0
}

func newFlags(name string, stderr io.Writer) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() { fmt.Fprint(stderr, usage) }
	return f
}

func parse(f *flag.FlagSet, args []string) error {
	err := f.Parse(args)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		return errUsage
	}
	return err
}

func try(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := newFlags("twjobs", stderr)
	dir := f.String("dir", "", "the directory of an embedded engine")
	url := f.String("nats", "", "the URL of a NATS server or cluster")
	queue := f.String("queue", "default", "the name of the queue")
	partitions := f.Int("partitions", 1, "over how many streams it is spread")
	if err := parse(f, args); err != nil {
		return err
	}
	if (*dir == "") == (*url == "") || f.NArg() == 0 || *queue == "" || *partitions < 1 {
		return errUsage
	}
	command, ok := commands[f.Arg(0)]
	if !ok {
		return errUsage
	}
	q, closeAll, err := open(ctx, *dir, *url, jetstream.Queue(*queue), jetstream.Partitions(*partitions))
	if err != nil {
		return err
	}
	defer closeAll()
	return command(&tool{Queue: q, ctx: ctx, out: stdout, err: stderr}, f.Args()[1:])
}

func open(ctx context.Context, dir, url string, opts ...jetstream.Option) (*durable.Queue, func(), error) {
	open := func() (durable.Engine, error) { return embedded.Open(ctx, dir, embedded.With(opts...)) }
	var nc *nats.Conn
	if url != "" {
		var err error
		if nc, err = nats.Connect(url); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", url, err)
		}
		open = func() (durable.Engine, error) { return jetstream.Connect(ctx, nc, opts...) }
	} else if _, err := os.Stat(dir); err != nil {
		return nil, nil, err // rather than make an empty one
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	e, err := open()
	var q *durable.Queue
	if err == nil {
		q, err = durable.Open(ctx, e)
	}
	closeAll := func() {
		if q != nil {
			q.Close()
		}
		if nc != nil {
			nc.Close()
		}
	}
	if err != nil {
		closeAll()
	}
	return q, closeAll, err
}
