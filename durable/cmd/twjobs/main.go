// Command twjobs shows the jobs of a queue and changes them.
//
//	twjobs [-json] [-timeout 1m] PLACE COMMAND
//	twjobs -version
//
// PLACE is the store of the queue, or a program that serves package admin:
//
//	-url URL [-header 'NAME: VALUE']...    the address of admin.NewHandler; user:password@ in it is sent
//	-dir DIR                               the directory of an embedded engine, while no process has it open
//	-nats URL [-creds FILE] [-nkey FILE] [-user NAME -password WORD] [-tlscert FILE -tlskey FILE] [-tlsca FILE] [-inbox-prefix PREFIX]
//	-context NAME                          the same, as the command nats keeps it
//	-postgres DSN
//
// -queue NAME selects a queue other than the default; in PostgreSQL it names the schema.
// -timeout DURATION bounds each answer, by default by a minute; 0 means no bound. A command
// that needs several answers may take longer: await polls until the job has ended, with 5 s more
// for each poll.
//
//	list [-state waiting|running|dead|done|canceled] [-kind KIND] [-lane LANE] [-meta NAME=VALUE]... [-n 100]
//	                  prints a line for each job, the longest due first. DUE is the time, and how far it is off: (5s)
//	                  is in 5 s, (-5s) was 5 s ago, so a waiting job is overdue
//	show REF          prints all of a job, its payload included
//	why REF | why -schedule NAME
//	                  prints why a job has not run, or why a schedule has no occurrence
//	await REF         waits until a job has ended, and prints how: done (exit status 0), dead with its
//	                  error (3), canceled (4), or unknown (5) if the job is not kept
//	cancel REF... | cancel -key KEY
//	                  cancels waiting jobs, or says why not
//	run-now REF...    makes waiting jobs due now
//	reschedule -at TIME|-in DURATION REF...
//	                  moves waiting jobs
//	redrive REF... | redrive -all [-kind KIND]
//	                  makes dead jobs wait again, with all their attempts
//	delete REF...     deletes jobs that have ended
//	stop REF...       asks the handlers of running jobs to end
//	stats             counts jobs by kind and state, and prints the kinds that no worker runs. It reads the
//	                  whole store. With -url it counts the handlers of that process that hang. Only
//	                  that process knows them: list shows their jobs as running
//	workers           prints the workers, the kinds that each runs, and its jobs
//	limits            prints the limits, with the running jobs of all processes and the waiting jobs of
//	                  the process that answers, and the pauses
//	limits set [-kind KIND] [-per-lane] -running N|-rate R -burst B NAME
//	limits delete NAME...
//	pause|resume [-kind KIND] [-lane LANE] | -all
//	                  stops new attempts, or allows them again; pause -for 30s ends by itself
//	schedules         prints the schedules
//	schedules pause|resume|run-now|delete NAME...
//	migrate [-print] [-create]   of -postgres: brings a schema to this version, or prints the statements
//	serve [-listen localhost:8470] [-write] [-host NAME]...
//	                  serves the page of package admin, its answers, and at /metrics the counts of waiting
//	                  jobs for Prometheus, until Ctrl-C. It only reads, unless -write is set. It has no
//	                  login: on another address than localhost put a proxy with one in front. -host
//	                  names a host that requests may be for. The default is localhost if it listens
//	                  there, and any host otherwise
//
// -json prints the answers of the admin handler, one value on each line.
//
// Only migrate -create makes a queue. Other commands fail if there is no queue. In the
// output an escape such as \x1b stands for each control character except line ends and tabs.
// Times are local, with their zone. The exit status is 1 if something failed or was
// not done, and 2 for a wrong command; await has others.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/admin"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream"
	"github.com/tickwheel/tickwheel/durable/jetstream/embedded"
)

const usage = `usage: twjobs [-json] [-timeout 1m] -url URL | -dir DIR | -nats URL | -context NAME | -postgres DSN [-queue NAME] COMMAND
       twjobs -version
  list [-state waiting|running|dead|done|canceled] [-kind KIND] [-lane LANE] [-meta NAME=VALUE]... [-n 100]
                                       jobs; DUE (5s) is in 5 s, (-5s) was 5 s ago: a waiting job is overdue
  show REF                             all of a job, its payload included
  why REF | why -schedule NAME         why a job has not run, or a schedule has no occurrence
  await REF                            waits for the end; exit status 0 done, 3 dead, 4 canceled, 5 not kept
  cancel REF... | cancel -key KEY      ends waiting jobs
  run-now REF...                       makes waiting jobs due now
  reschedule -at TIME|-in DURATION REF...
  redrive REF... | redrive -all [-kind KIND]   makes dead jobs wait again
  delete REF...                        deletes jobs that have ended
  stop REF...                          asks the handlers of running jobs to end
  stats                                counts of jobs, kinds without a worker, handlers that hang
  workers                              the workers and their kinds
  limits | limits set [-kind KIND] [-per-lane] -running N|-rate R -burst B NAME | limits delete NAME...
  pause|resume [-for DURATION] [-kind KIND] [-lane LANE] | -all   -for is of pause
  schedules | schedules pause|resume|run-now|delete NAME...
  migrate [-print] [-create]           brings the schema of -postgres to this version
  serve [-listen localhost:8470] [-write] [-host NAME]...   serves the page, and /metrics
-timeout bounds each answer, and not the command: await waits for as long as the job takes
-url:  [-header 'NAME: VALUE']...
-nats: [-creds FILE] [-nkey FILE] [-user NAME -password WORD] [-tlscert FILE -tlskey FILE] [-tlsca FILE] [-inbox-prefix PREFIX] [-partitions N]
-postgres: -queue is the schema
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// output is where it goes, and whether as JSON.
type output struct {
	out, err io.Writer
	json     bool
}

// run is the program, and returns its exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	err := try(ctx, args, stdout, stderr)
	var usageErr *usageError
	var as endedAs
	switch {
	case errors.As(err, &as):
		return int(as)
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage)
		return 0
	case errors.As(err, &usageErr):
		fmt.Fprintf(stderr, "twjobs: %s\ntwjobs -h lists the commands\n", printable(usageErr.text))
		return 2
	case err != nil:
		fmt.Fprintln(stderr, "twjobs:", printable(err.Error()))
		return 1
	}
	return 0
}

// target is the queue that the command works on.
type target struct {
	url, dir, postgres, context string
	access                      // to NATS
	headers                     pairs
	queue                       string        // "": the engine's default
	partitions                  int           // 0: as it is
	timeout                     time.Duration // of each answer; 0: none
}

var (
	queueName  = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
	schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)
)

// checkQueue says what is wrong with the queue's name.
func (t *target) checkQueue() error {
	switch {
	case t.queue == "":
	case t.url != "":
		return wrong("-queue: not with -url, since a handler has one queue")
	case t.postgres != "" && !schemaName.MatchString(t.queue):
		return fmt.Errorf("-queue %q: a schema's name has lower-case letters, digits and _", t.queue)
	case t.postgres == "" && !queueName.MatchString(t.queue):
		return fmt.Errorf("-queue %q: a queue's name has letters, digits, - and _", t.queue)
	}
	return nil
}

// check says what is wrong with the target.
func (t *target) check() error {
	set := 0
	for _, s := range []string{t.url, t.dir, cmp.Or(t.access.URL, t.context), t.postgres} {
		if s != "" {
			set++
		}
	}
	switch {
	case set == 0:
		return wrong("the queue is missing: set -url, -dir, -nats, -context or -postgres before the command")
	case set > 1:
		return wrong("more than one queue is set")
	case t.timeout < 0:
		return wrong("-timeout %v is negative", t.timeout)
	case t.partitions < 0 || t.partitions > 1000:
		return wrong("-partitions %d is not from 0 to 1000", t.partitions)
	}
	return t.checkQueue()
}

// bound is ctx for one answer of the target.
func (t *target) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if t.timeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, t.timeout, fmt.Errorf("no answer within %v from %s: try again with a longer -timeout", t.timeout, t.name()))
}

// late returns why ctx has ended, if the error came after that.
func late(ctx context.Context, err error) error {
	if why := context.Cause(ctx); why != nil && err != nil && !errors.Is(err, why) {
		return fmt.Errorf("%w: %w", why, err)
	}
	return err
}

// name is what errors call the target. It has no password.
func (t *target) name() string {
	switch {
	case t.url != "":
		if u, err := url.Parse(t.url); err == nil {
			u.User = nil
			return u.String()
		}
		return "-url"
	case t.dir != "":
		return t.dir
	case t.context != "":
		return "the context " + t.context
	case t.postgres != "":
		if c, err := pgconn.ParseConfig(t.postgres); err == nil {
			return fmt.Sprintf("the database %s at %s, port %d", c.Database, c.Host, c.Port)
		}
		return "-postgres"
	}
	return redact(t.access.URL, t.access.URL)
}

func (t *target) flags(f *flag.FlagSet) {
	f.StringVar(&t.url, "url", "", "the address of an admin handler")
	f.Var(&t.headers, "header", "a header to send to -url")
	f.StringVar(&t.dir, "dir", "", "the directory of an embedded engine")
	f.StringVar(&t.access.URL, "nats", "", "the URL of a NATS server or cluster")
	f.StringVar(&t.context, "context", "", "a context of the command nats")
	f.StringVar(&t.postgres, "postgres", "", "the address of a PostgreSQL database")
	f.StringVar(&t.queue, "queue", "", "the name of the queue, in PostgreSQL that of its schema")
	f.DurationVar(&t.timeout, "timeout", time.Minute, "the bound of each answer; 0: none")
	f.IntVar(&t.partitions, "partitions", 0, "the number of its streams; 0: as stored")
	t.access.flags(f)
}

func try(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f, to := newFlags("twjobs", stderr), target{}
	o := &output{out: stdout, err: stderr}
	f.BoolVar(&o.json, "json", false, "print the answers of the admin handler")
	version := f.Bool("version", false, "print the version")
	to.flags(f)
	if err := parse(f, args); err != nil {
		return err
	}
	if *version {
		if b, ok := debug.ReadBuildInfo(); ok {
			fmt.Fprintln(stdout, "twjobs", b.Main.Version, b.GoVersion)
		}
		return nil
	}
	command, ok := commands[f.Arg(0)]
	switch {
	case f.NArg() == 0:
		return wrong("the command is missing")
	case !ok && f.Arg(0) != "migrate" && f.Arg(0) != "serve":
		return wrong("unknown command %q", f.Arg(0))
	}
	if err := to.check(); err != nil {
		return err
	}
	switch f.Arg(0) {
	case "migrate":
		return to.migrate(ctx, o, f.Args()[1:])
	case "serve":
		return to.serve(ctx, o, f.Args()[1:])
	}
	c, closeAll, err := to.client(ctx)
	if err != nil {
		return err
	}
	defer closeAll()
	return command(&tool{client: c, ctx: ctx, json: o.json, out: stdout, err: stderr}, f.Args()[1:])
}

// client returns one of the handler behind the address, or of one on a queue that is opened.
func (t *target) client(ctx context.Context) (*client, func(), error) {
	if t.url != "" {
		c, err := newClient(t)
		return c, func() {}, err
	}
	q, closeAll, err := t.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	silent := slog.New(slog.DiscardHandler) // who has typed the command knows of it
	h := admin.NewHandler(q, admin.WithWrites(), admin.WithLogger(silent))
	return &client{base: "http://twjobs/", http: local{h}, target: t}, closeAll, nil
}

// open opens the queue, and returns how it is closed.
func (t *target) open(ctx context.Context) (*durable.Queue, func(), error) {
	ctx, cancel := t.bound(ctx)
	defer cancel()
	e, disconnect, err := t.engine(ctx)
	if err != nil {
		disconnect()
		return nil, nil, late(ctx, err)
	}
	q, err := durable.Open(ctx, e)
	if err != nil {
		err = errors.Join(late(ctx, err), e.Close())
		disconnect()
		return nil, nil, err
	}
	return q, func() { q.Close(); disconnect() }, nil
}

// engine connects to what keeps the queue. It makes nothing: a name that was mistyped is an
// error.
func (t *target) engine(ctx context.Context) (e driver.Engine, disconnect func(), err error) {
	opts := []jetstream.Option{jetstream.WithExistingOnly()}
	if t.queue != "" {
		opts = append(opts, jetstream.WithQueue(t.queue))
	}
	if t.partitions > 0 {
		opts = append(opts, jetstream.WithPartitions(t.partitions))
	}
	switch {
	case t.postgres != "":
		return t.connectPostgres(ctx)
	case t.context != "":
		a, err := t.access.under(t.context)
		if err != nil {
			return nil, func() {}, err
		}
		return a.connect(ctx, opts)
	case t.access.URL != "":
		return t.access.connect(ctx, opts)
	}
	if _, err := os.Stat(filepath.Join(t.dir, "jetstream")); err != nil {
		return nil, func() {}, fmt.Errorf("-dir: there is no queue: %w", err)
	}
	if e, err = embedded.Open(ctx, t.dir, embedded.WithJetStream(opts...)); errors.Is(err, durable.ErrLocked) {
		err = fmt.Errorf("%w: use -url with the address of that process's admin handler", err)
	}
	return e, func() {}, err
}
