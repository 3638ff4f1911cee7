// Reminders keeps reminders that survive a crash, in a directory, on a NATS cluster, or
// in PostgreSQL.
//
//	reminders [-dir DIR | -nats URL [-replicas N] | -postgres DSN] COMMAND
//
//	add DELAY TEXT     prints the reminder's REF
//	order DELAY ITEM   with -postgres: an order, and its reminder, in one transaction
//	list
//	cancel REF
//	run                shows each when it is due, until Ctrl-C; kill -9 it and start it again
//
// The directory, ./reminders-data by default, is one process's at a time: while run has
// it the other commands say that it is locked. With -nats or -postgres they work beside
// any number of runs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream"
	"github.com/tickwheel/tickwheel/durable/jetstream/embedded"
)

const (
	kind  = "reminder"
	usage = `usage: reminders [-dir DIR | -nats URL [-replicas N] | -postgres DSN] COMMAND
  add DELAY TEXT
  order DELAY ITEM
  list
  cancel REF
  run
`
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// place is where the reminders are kept.
type place struct {
	dir, nats, postgres string
	replicas            int // 0: as they are
}

// program is an open place.
type program struct {
	*durable.Queue
	orders *orders // nil unless it is PostgreSQL
	stdout io.Writer
}

// run is the program, and returns its exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("reminders", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage) }
	var at place
	flags.StringVar(&at.dir, "dir", "reminders-data", "where they are kept")
	flags.StringVar(&at.nats, "nats", "", "a NATS server or cluster that keeps them instead")
	flags.StringVar(&at.postgres, "postgres", "", "a PostgreSQL database that keeps them instead")
	flags.Func("replicas", "on how many servers of the cluster; by default on as many as they are, and on one if they are new", func(s string) (err error) {
		if at.replicas, err = strconv.Atoi(s); at.replicas < 1 && err == nil {
			err = errors.New("less than 1")
		}
		return err
	})
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if at.nats != "" && at.postgres != "" || !valid(flags.Args(), at.postgres != "") {
		fmt.Fprint(stderr, usage)
		return 2
	}
	err := at.with(ctx, stdout, func(p *program) error { return p.command(ctx, flags.Args()) })
	if err != nil {
		fmt.Fprintln(stderr, "reminders:", err)
		return 1
	}
	return 0
}

// with opens what keeps the reminders, and closes it after f.
func (at place) with(ctx context.Context, stdout io.Writer, f func(*program) error) error {
	p := &program{stdout: stdout}
	var e driver.Engine
	var err error
	switch {
	case at.postgres != "":
		if p.orders, err = openOrders(ctx, at.postgres); err != nil {
			return err
		}
		defer p.orders.pool.Close()
		e = p.orders.engine
	case at.nats != "":
		nc, connectErr := nats.Connect(at.nats, nats.MaxReconnects(-1))
		if connectErr != nil {
			return fmt.Errorf("%s: %w", at.nats, connectErr)
		}
		defer nc.Close()
		opts := []jetstream.Option{jetstream.WithQueue("reminders")}
		if at.replicas > 0 {
			opts = append(opts, jetstream.WithReplicas(at.replicas))
		}
		e, err = jetstream.Connect(ctx, nc, opts...)
	default:
		e, err = embedded.Open(ctx, at.dir)
	}
	if err != nil {
		return err
	}
	if p.Queue, err = durable.Open(ctx, e); err != nil {
		return errors.Join(err, e.Close())
	}
	return errors.Join(f(p), p.Close())
}

// valid tells whether the command is one, before anything is opened.
func valid(args []string, orders bool) bool {
	if len(args) == 0 {
		return false
	}
	switch args[0] {
	case "add":
		return len(args) >= 3
	case "order":
		return len(args) >= 3 && orders
	case "cancel":
		return len(args) == 2
	case "list", "run":
		return len(args) == 1
	}
	return false
}

func (p *program) command(ctx context.Context, args []string) error {
	switch args[0] {
	case "add":
		return p.add(ctx, args[1], strings.Join(args[2:], " "))
	case "order":
		return p.orders.order(ctx, args[1], strings.Join(args[2:], " "), p.stdout)
	case "list":
		return p.list(ctx)
	case "cancel":
		return p.cancel(ctx, durable.Ref(args[1]))
	default:
		return p.remind(ctx)
	}
}

func (p *program) add(ctx context.Context, delay, text string) error {
	after, err := time.ParseDuration(delay)
	if err != nil {
		return err
	}
	ref, err := p.Add(ctx, durable.Job{Kind: kind, After: after, Payload: []byte(text)})
	if err == nil {
		fmt.Fprintln(p.stdout, ref)
	}
	return err
}

func (p *program) list(ctx context.Context) error {
	n := 0
	for i, err := range p.All(ctx, durable.Filter{Kind: kind}) {
		if err != nil {
			return err
		}
		n++
		fmt.Fprintf(p.stdout, "%s  %s  %v  %s\n", i.Ref, i.Due.Local().Format(time.DateTime), i.State, i.Job.Payload)
	}
	noun := "reminders"
	if n == 1 {
		noun = "reminder"
	}
	fmt.Fprintf(p.stdout, "%d %s\n", n, noun)
	return nil
}

func (p *program) cancel(ctx context.Context, ref durable.Ref) error {
	ok, err := p.Cancel(ctx, ref)
	if err == nil && !ok {
		err = errors.New("too late, or canceled before")
	}
	if err == nil {
		fmt.Fprintln(p.stdout, "canceled")
	}
	return err
}

func (p *program) remind(ctx context.Context) error {
	p.Handle(kind, func(_ context.Context, a *durable.Attempt) error {
		late := ""
		if d := time.Since(a.Due); d > time.Second {
			late = fmt.Sprintf(" (%v late)", d.Round(time.Second))
		}
		_, err := fmt.Fprintf(p.stdout, "%s  %s%s\n", time.Now().Format(time.TimeOnly), a.Job.Payload, late)
		return err
	})
	fmt.Fprintln(p.stdout, "waiting; Ctrl-C ends")
	return p.Run(ctx)
}
