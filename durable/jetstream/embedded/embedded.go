// Package embedded keeps durable jobs in a directory: a NATS server within the process,
// with no port, that syncs every write. One process at a time has the directory.
//
//	engine, err := embedded.Open(ctx, "/var/lib/reminders")
//	q, err := durable.Open(ctx, engine)
//
// Jobs that Add has accepted survive the death of the process and a power cut, but not
// the loss of the disk. [Open] checks whether the directory is damaged. The engine is
// that of package jetstream; for more than one machine, use that package with a
// connection to a cluster.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/options"
)

const (
	defaultMaxStore = 16 << 30
	startTimeout    = 10 * time.Minute // a store of some ten million jobs takes seconds to read

	// The limit is that of the streams. A server with a limit of its own reserves those of its streams,
	// and refuses to make them smaller while they are above it.
	unlimited = 1 << 62
)

// Option sets up an engine that [Open] returns.
type Option func(*config)

type config struct {
	maxStore   int64
	acceptLoss bool
	log        *slog.Logger
	engine     []jetstream.Option
	free       func(dir string) (int64, error) // another one in tests
}

// WithMaxStore sets how many bytes the store may take on disk, 16 GiB by default. Add returns
// durable.ErrFull at seven tenths of that, so that there is room for the ends of jobs,
// and goes on when jobs have ended. If the disk has less room, that is the limit. Partitions
// share it in equal parts.
//
// 8 MiB of the disk stay free, for the server's own needs. If other programs use these,
// the engine writes nothing: Add returns durable.ErrFull, no attempt begins or ends,
// leases run out, and Health and the log say why. When the disk has room again, work goes
// on. If the disk fills up so fast that a write of the server fails, no later one
// succeeds in this process. Then the engine ends as soon as the disk has room: Run and
// all other calls return an error that wraps durable.ErrStorage and names the cause, so
// that a supervisor restarts the process. Open then finds all accepted jobs. Open panics
// on less than 8 MiB.
func WithMaxStore(bytes int64) Option {
	return func(c *config) {
		if bytes < 8<<20 {
			panic(fmt.Sprintf("embedded: WithMaxStore(%d): less than 8 MiB", bytes))
		}
		c.maxStore = bytes
	}
}

// WithLogger sets where the server's warnings and errors go, slog.Default() by default.
// Reports of lost or damaged messages have level Error, other warnings Warn. After a kill
// the server warns that it reads its files anew, which is normal. Open panics on nil.
func WithLogger(l *slog.Logger) Option {
	return func(c *config) {
		if l == nil {
			panic("embedded: WithLogger(nil)")
		}
		c.log = l
	}
}

// WithAcceptLoss makes Open continue with the readable part of a damaged store, instead of
// returning an error. Open logs the losses at level Error. It removes unreadable messages
// for good, so copy the directory before.
//
// A lost message may be a job, or a part of its state. A job whose end or cancellation is
// lost waits again, and runs. The key of a lost job is free. A schedule whose next
// occurrence is lost stands still until Queue.SetSchedule or Queue.ResumeSchedule is called
// for it, as programs do that store their schedules at each start. Lost limits and pauses
// have no effect any more.
func WithAcceptLoss() Option {
	return func(c *config) { c.acceptLoss = true }
}

// WithJetStream passes options on to jetstream.Connect, such as its WithQueue.
func WithJetStream(opts ...jetstream.Option) Option {
	return func(c *config) { c.engine = append(c.engine, opts...) }
}

// engine is that of package jetstream, with what has to be closed after it.
type engine struct {
	driver.Engine
	nc      *nats.Conn
	srv     *server.Server
	lock    *lock
	disk    *disk
	dir     string
	log     *slog.Logger
	marked  bool // as open: Close marks it as closed
	closing sync.Once
	err     error
}

// Open starts a server on the directory, makes the directory if necessary, and returns an
// engine on it. If another process, or another engine of this one, has the directory, it
// returns durable.ErrLocked at once. If the disk is full it returns durable.ErrFull.
//
// It first reads the whole directory, which takes about a second for each GB in memory or
// on a good disk. If it finds damage, it returns a durable.ErrStorage that names it; see
// [WithAcceptLoss]. After a regular Close it finds every file that is missing, was added or
// has another length, and every record that was changed. After a kill or a power cut it
// finds changes within a file, and a missing queue. It then cannot distinguish two kinds
// of damage: one missing file of many, or a file's end missing at a record's boundary,
// looks like data that the server has removed; damage to the last write looks like a
// write that was cut off. Such a write was never acknowledged, so it is not an error. The
// next Open finds damage that is done while the store is open.
func Open(ctx context.Context, dir string, opts ...Option) (driver.Engine, error) {
	c := config{maxStore: defaultMaxStore, log: slog.Default(), free: freeBytes}
	for _, opt := range opts {
		if opt == nil {
			panic("embedded: Open: nil Option")
		}
		opt(&c)
	}
	if err := os.MkdirAll(dir, 0o700); errors.Is(err, syscall.ENOSPC) {
		return nil, fmt.Errorf("%w: %w", driver.ErrFull, err)
	} else if err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrStorage, err)
	}
	d := newDisk(dir, c.free, c.log)
	l, err := take(dir)
	if _, full := d.free(); errors.Is(err, driver.ErrStorage) && errors.Is(full, driver.ErrFull) {
		err = full // there was no room for the owner's number
	}
	if err != nil {
		return nil, err
	}
	e := &engine{lock: l, disk: d, dir: dir, log: c.log}
	if err := e.open(ctx, &c); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// open checks the directory, starts the server on it, and notes what there is then.
func (e *engine) open(ctx context.Context, c *config) error {
	if _, err := e.disk.free(); errors.Is(err, driver.ErrFull) {
		return err // the server would fail, at the latest when it is to write something
	}
	a, err := e.check(ctx, c)
	if err != nil {
		return err
	}
	if err := markOpen(e.dir); err != nil {
		return fmt.Errorf("%w: %w", driver.ErrStorage, err)
	}
	e.marked = true
	if err := e.start(ctx, e.dir, c); err != nil {
		return err
	}
	if err := noteStreams(e.dir, a); err != nil {
		return fmt.Errorf("%w: %w", driver.ErrStorage, err)
	}
	return nil
}

// check returns the account of what there is, or an error that says what is not there any
// more.
func (e *engine) check(ctx context.Context, c *config) (*account, error) {
	a, accountErr := readAccount(e.dir)
	in, err := inspect(ctx, e.dir, a)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("embedded: Open: reading the directory: %w", context.Cause(ctx))
	case err != nil:
		return nil, fmt.Errorf("%w: %w", driver.ErrStorage, err)
	}
	if accountErr != nil {
		in.found("what there was cannot be read: %v", accountErr)
	}
	if len(in.damage) == 0 {
		return a, nil
	}
	if !c.acceptLoss {
		return nil, fmt.Errorf("%w: %s is damaged: %s: WithAcceptLoss opens the rest", driver.ErrStorage, e.dir, in)
	}
	for _, what := range in.damage {
		c.log.Error("durable: the embedded store is damaged", "dir", e.dir, "what", what)
	}
	if err := in.repair(); err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrStorage, err)
	}
	return a, nil
}

func (e *engine) start(ctx context.Context, dir string, c *config) (err error) {
	e.srv, err = server.NewServer(&server.Options{
		ServerName: "tickwheel", DontListen: true, NoSigs: true, NoLog: true, NoSystemAccount: true,
		JetStream: true, StoreDir: dir, SyncAlways: true, JetStreamMaxStore: unlimited,
		JetStreamMaxMemory: 1 << 30, DisableJetStreamBanner: true,
	})
	if err != nil {
		return fmt.Errorf("%w: %w", driver.ErrStorage, err)
	}
	e.srv.SetLogger(serverLog{c.log, e.disk.heard}, false, false)
	e.srv.Start()
	if err := e.awaitReady(ctx); err != nil {
		return err
	}
	// The default of two seconds for a handshake is too short for a process that is frozen meanwhile.
	if e.nc, err = nats.Connect("", nats.InProcessServer(e.srv), nats.MaxReconnects(-1), nats.Timeout(time.Minute)); err != nil {
		return fmt.Errorf("embedded: Open: %w", err)
	}
	own := func(o *options.Options) {
		o.Own = &options.OwnServer{Free: e.disk.free, MaxStore: c.maxStore - c.maxStore/10, Alive: e.disk.alive}
	}
	if e.Engine, err = jetstream.Connect(ctx, e.nc, append([]jetstream.Option{own}, c.engine...)...); err != nil {
		return err
	}
	e.disk.opened(func(ctx context.Context) error { _, _, err := e.Engine.Now(ctx); return err })
	return nil
}

func (e *engine) awaitReady(ctx context.Context) error {
	for end := time.Now().Add(startTimeout); !e.srv.ReadyForConnections(100 * time.Millisecond); {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("embedded: Open: the server does not start: %w", context.Cause(ctx))
		}
		if !e.srv.Running() || time.Now().After(end) {
			return fmt.Errorf("%w: the server does not start on this directory", driver.ErrStorage)
		}
	}
	if !e.srv.JetStreamEnabled() {
		return fmt.Errorf("%w: the server cannot use this directory", driver.ErrStorage)
	}
	return nil
}

// Health is for durable.Queue: it returns an error while the disk is full, or that of package jetstream.
func (e *engine) Health(ctx context.Context) error {
	if _, err := e.disk.free(); errors.Is(err, driver.ErrFull) {
		return err
	}
	return e.Engine.(interface{ Health(context.Context) error }).Health(ctx)
}

// closeTimeout is how long the server may take to end. One that has failed may never.
const closeTimeout = 15 * time.Second

// Close ends the engine and the server, and releases the directory. A server that does
// not end keeps the directory locked until this process ends, since it may still write
// there; then Close returns ErrStorage after 15 seconds.
func (e *engine) Close() error {
	e.closing.Do(func() {
		if e.Engine != nil {
			e.err = e.Engine.Close()
		}
		e.disk.end(driver.ErrClosed)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if e.nc != nil {
				e.nc.Close()
			}
			if e.srv != nil {
				e.srv.Shutdown()
				e.srv.WaitForShutdown()
			}
		}()
		select {
		case <-ended:
		case <-time.After(closeTimeout):
			e.err = fmt.Errorf("%w: the server does not stop: %s stays locked until this process ends", driver.ErrStorage, e.dir)
			return
		}
		if e.marked {
			if err := markClosed(e.dir); err != nil { // the next Open is less strict, and that is all
				e.log.Warn("durable: cannot write the directory of the embedded store", "dir", e.dir, "error", err)
			}
		}
		e.err = errors.Join(e.err, e.lock.release())
	})
	return e.err
}
