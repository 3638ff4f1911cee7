// Command twjobs shows the jobs of a queue and changes them.
//
//	twjobs -dir DIR | -nats URL [-queue NAME] [-partitions N] | -postgres DSN [-queue SCHEMA] COMMAND
//
//	list [-state waiting|running|dead] [-kind KIND] [-n 100]   a line for each job
//	show REF          all of one, its payload included
//	cancel REF...     canceled, or not: it runs, or has ended
//	cancel -key KEY
//	redrive REF...    has dead jobs run again
//	redrive -all [-kind KIND]
//	stats             how many there are of each kind and state, and which kinds no worker runs; it reads all of the store
//	schedules         a line for each schedule
//	schedules pause|resume|run-now|delete NAME...
//	limits            a line for each limit, with what runs in all processes, and what is paused
//	limits set [-kind KIND] [-per-lane] [-running N] [-rate R -burst B] NAME
//	limits remove NAME...
//	pause|resume [-kind KIND] [-lane LANE]   without both: the whole queue
//	stop REF...       ends jobs that run, if their handlers heed it
//
// It never makes a queue: one that is not there is an error. A directory can be opened
// only while no process has it. What is printed has no control characters but line ends
// and tabs: \x1b and the like stand for them. The exit status is 1 if something failed or
// was not done, 2 for a wrong command.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/jetstream"
	"github.com/tickwheel/tickwheel/durable/jetstream/embedded"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

const usage = `usage: twjobs -dir DIR | -nats URL [-queue NAME] [-partitions N] | -postgres DSN [-queue SCHEMA] COMMAND
  list [-state waiting|running|dead] [-kind KIND] [-n 100]
  show REF
  cancel REF... | cancel -key KEY
  redrive REF... | redrive -all [-kind KIND]
  stats
  schedules | schedules pause|resume|run-now|delete NAME...
  limits | limits set [-kind KIND] [-per-lane] [-running N] [-rate R -burst B] NAME | limits remove NAME...
  pause|resume [-kind KIND] [-lane LANE]
  stop REF...
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
		fmt.Fprintln(stderr, "twjobs:", printable(err.Error()))
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

// place is where the queue is.
type place struct {
	dir, nats, postgres string // one of them is set
	queue               string // "": the engine's default
	partitions          int    // 0: as it is
}

var (
	queueName  = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
	schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)
)

// checkQueue says what is wrong with the queue's name.
func (p place) checkQueue() error {
	switch {
	case p.queue == "":
	case p.postgres != "" && !schemaName.MatchString(p.queue):
		return fmt.Errorf("-queue %q: a schema's name is of small letters, digits and _", p.queue)
	case p.postgres == "" && !queueName.MatchString(p.queue):
		return fmt.Errorf("-queue %q: a queue's name is of letters, digits, - and _", p.queue)
	}
	return nil
}

func (p place) valid() bool {
	set := 0
	for _, s := range []string{p.dir, p.nats, p.postgres} {
		if s != "" {
			set++
		}
	}
	return set == 1 && p.partitions >= 0 && p.partitions <= 1000
}

func try(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := newFlags("twjobs", stderr)
	var p place
	f.StringVar(&p.dir, "dir", "", "the directory of an embedded engine")
	f.StringVar(&p.nats, "nats", "", "the URL of a NATS server or cluster")
	f.StringVar(&p.postgres, "postgres", "", "the address of a PostgreSQL database")
	f.StringVar(&p.queue, "queue", "", "the name of the queue, in PostgreSQL that of its schema")
	f.IntVar(&p.partitions, "partitions", 0, "over how many streams it is spread; 0: as it is")
	if err := parse(f, args); err != nil {
		return err
	}
	command, ok := commands[f.Arg(0)]
	if !ok || !p.valid() {
		return errUsage
	}
	if err := p.checkQueue(); err != nil {
		return err
	}
	q, closeAll, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer closeAll()
	return command(&tool{Queue: q, ctx: ctx, out: stdout, err: stderr}, f.Args()[1:])
}

// open opens the queue, and returns how it is closed.
func (p place) open(ctx context.Context) (*durable.Queue, func(), error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	e, disconnect, err := p.engine(ctx)
	if err != nil {
		disconnect()
		return nil, nil, err
	}
	q, err := durable.Open(ctx, e)
	if err != nil {
		err = errors.Join(err, e.Close())
		disconnect()
		return nil, nil, err
	}
	return q, func() { q.Close(); disconnect() }, nil
}

// engine connects to what keeps the queue. It makes nothing: a name that was mistyped is an
// error.
func (p place) engine(ctx context.Context) (e durable.Engine, disconnect func(), err error) {
	opts := []jetstream.Option{jetstream.Existing()}
	if p.queue != "" {
		opts = append(opts, jetstream.Queue(p.queue))
	}
	if p.partitions > 0 {
		opts = append(opts, jetstream.Partitions(p.partitions))
	}
	switch {
	case p.postgres != "":
		return p.connectPostgres(ctx)
	case p.nats != "":
		return connectNATS(ctx, p.nats, opts)
	}
	if _, err := os.Stat(filepath.Join(p.dir, "jetstream")); err != nil {
		return nil, func() {}, fmt.Errorf("-dir: no queue has been kept there: %w", err)
	}
	e, err = embedded.Open(ctx, p.dir, embedded.With(opts...))
	return e, func() {}, err
}

// connectNATS shows nothing of a user and a password that are in the addresses.
func connectNATS(ctx context.Context, urls string, opts []jetstream.Option) (durable.Engine, func(), error) {
	for address := range strings.SplitSeq(urls, ",") {
		if _, _, ok := strings.Cut(address, "://"); !ok {
			address = "nats://" + address
		}
		if _, err := url.Parse(strings.TrimSpace(address)); err != nil {
			return nil, func() {}, errors.New("-nats: that is no URL") // the error has parts of it
		}
	}
	nc, err := nats.Connect(urls, nats.MaxReconnects(-1))
	if err != nil {
		return nil, func() {}, errors.New(redact(fmt.Sprintf("%s: %v", urls, err), urls))
	}
	e, err := jetstream.Connect(ctx, nc, opts...)
	return e, nc.Close, err
}

// redact takes what is before the @ of each address out of a text.
func redact(text, urls string) string {
	for address := range strings.SplitSeq(urls, ",") {
		if _, rest, ok := strings.Cut(address, "://"); ok {
			address = rest
		}
		if i := strings.LastIndexByte(address, '@'); i > 0 {
			text = strings.ReplaceAll(text, address[:i+1], "xxxxx@")
		}
	}
	return text
}

// connectPostgres makes no tables: a queue that is not there is an error.
func (p place) connectPostgres(ctx context.Context) (durable.Engine, func(), error) {
	var opts []postgres.Option
	if p.queue != "" {
		opts = append(opts, postgres.Schema(p.queue))
	}
	pool, err := pgxpool.New(ctx, p.postgres)
	if err != nil {
		return nil, func() {}, err
	}
	e, err := postgres.Connect(ctx, pool, opts...)
	if err != nil {
		return nil, pool.Close, err
	}
	return e, pool.Close, nil
}
