//go:build unix

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream"
	"github.com/tickwheel/tickwheel/durable/jetstream/embedded"
	"github.com/tickwheel/tickwheel/durable/trials/setclock"
)

// concurrency is how many jobs may run again when a process is killed: some times as many
// as are needed at 400 jobs a second.
const concurrency = 64

// What a process of the test is told, in its environment.
const (
	envRole   = "CHAOS_ROLE"   // embedded, server, worker, producer, tool, ruler, drain
	envDir    = "CHAOS_DIR"    // of ledgers
	envStore  = "CHAOS_STORE"  // of the server
	envURL    = "CHAOS_URL"    // of servers
	envRate   = "CHAOS_RATE"   // jobs a second
	envNear   = "CHAOS_NEAR"   // how far ahead most jobs are due
	envFar    = "CHAOS_FAR"    // and the others
	envLease  = "CHAOS_LEASE"  // of workers
	envClock  = "CHAOS_CLOCK"  // the file that its clocks follow
	envSlow   = "CHAOS_SLOW"   // how long a handler of a worker takes at most
	envPlaces = "CHAOS_PLACES" // how many handlers run at once in a worker
	envFail   = "CHAOS_FAIL"   // of a hundred attempts in a worker
	envDead   = "CHAOS_DEAD"   // of a hundred of those: the job is dead at once
	envMoved  = "CHAOS_MOVED"  // if set, jobs are moved to other times
	envRace   = "CHAOS_RACE"   // of a hundred jobs: they are canceled when they are about to be claimed
	envCancel = "CHAOS_CANCEL" // of a hundred jobs whose attempt has failed: they are canceled
	envKinds  = "CHAOS_KINDS"  // that a worker runs, or a producer adds, with spaces between
	envLanes  = "CHAOS_LANES"  // how many lanes a producer has
	envHogs   = "CHAOS_HOGS"   // goroutines that take connections from the pool
	envNodes  = "CHAOS_NODES"  // of the cluster
	envAsk    = "CHAOS_ASK"    // if set, Health is asked for all the time
	envName   = "CHAOS_NAME"   // of a server or a client
	envPort   = "CHAOS_PORT"   // of a server
	envRoutes = "CHAOS_ROUTES" // ports of the cluster, the server's own first
	kind      = "job"
)

// few is the kind that has a limit in each worker, and nobodys one that none runs until the
// end.
const (
	few     = "few"
	nobodys = "nobody's"
)

// kindsOf returns the kinds of a process. What is left at the end is run whatever it is.
func kindsOf(role string) []string {
	if role == "drain" {
		return []string{kind, "other", few, nobodys, capped, paced}
	}
	return strings.Split(cmp.Or(os.Getenv(envKinds), kind), " ")
}

// runRole is the main function of a process of the test.
func runRole(role string) error {
	if path := os.Getenv(envClock); path != "" {
		if err := setclock.Follow(path); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if role == "server" {
		return serve(ctx)
	}
	e, err := connect(ctx, role)
	if err != nil {
		return err
	}
	l, err := openLedger(os.Getenv(envDir))
	if err != nil {
		return err
	}
	e = &muteable{e, mutePath(os.Getenv(envDir), os.Getenv(envName)), leases(l, role)}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	places := concurrency
	if role != "drain" {
		places = number(envPlaces, concurrency)
	}
	q, err := durable.Open(ctx, e, durable.WithLease(span(envLease)), durable.WithLogger(log),
		durable.WithConcurrency(places), durable.WithRetention(retention), durable.WithKindConcurrency(few, 2))
	if err != nil {
		return err
	}
	defer q.Close()
	var wg sync.WaitGroup
	if role == "embedded" || role == "producer" {
		wg.Go(func() { produce(ctx, q, l, number(envRate, 0), span(envNear), span(envFar)) })
	}
	if os.Getenv(envAsk) != "" && role != "drain" {
		wg.Go(func() { watchHealth(ctx, q, l) })
	}
	switch role {
	case "tool":
		operate(ctx, q, e, l)
	case "ruler":
		err = rule(ctx, q, l)
	case "producer":
	default:
		h := newHandling(q, l, role)
		for _, kind := range kindsOf(role) {
			q.Handle(kind, h.handle)
		}
		runCtx, cancel := context.WithCancel(ctx)
		if role == "drain" {
			wg.Go(func() { awaitEmpty(ctx, q); listDead(ctx, q, l); cancel() })
		}
		schedules := plannedFor(q)
		if err = schedules.storeAll(ctx, l, role == "drain"); err == nil {
			if os.Getenv(envEdits) != "" && role != "drain" {
				wg.Go(func() { schedules.edit(ctx) })
			}
			err = q.Run(runCtx)
		}
		if err != nil {
			stop() // the others, too: what supervises this process starts it again
		}
		cancel()
		h.canceling.Wait()
	}
	wg.Wait()
	l.write(peace, "end")
	return err
}

// retention is longer than all that passes in a fault.
const retention = 20 * 365 * 24 * time.Hour

// number returns what the environment says, or else.
func number(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// span returns what the environment says, or 0.
func span(name string) time.Duration {
	d, _ := time.ParseDuration(os.Getenv(name))
	return d
}

// handling is how a process runs jobs.
type handling struct {
	q          *durable.Queue
	l          *ledger
	clock      clockLog
	slow       time.Duration
	fail, dead int // of a hundred; so is cancel
	cancel     int
	moved      bool
	canceling  sync.WaitGroup
}

// newHandling follows the environment, but what is left at the end is run quickly.
func newHandling(q *durable.Queue, l *ledger, role string) *handling {
	h := &handling{q: q, l: l, clock: logIn(os.Getenv(envDir)), slow: 5 * time.Millisecond}
	if role != "drain" {
		h.slow = cmp.Or(span(envSlow), h.slow)
		h.fail, h.dead, h.cancel = number(envFail, 0), number(envDead, 0), number(envCancel, 0)
	}
	h.moved = os.Getenv(envMoved) != ""
	return h
}

var errMeant = errors.New("it is meant to fail")

func (h *handling) handle(_ context.Context, a *durable.Attempt) error {
	due := a.Due
	if a.Number == 1 && !h.moved && due.Before(a.Job.At) {
		due = a.Job.At
	}
	isEarly := h.clock.isEarly(due)
	h.l.write(began, string(a.Ref))
	if k := a.Job.Kind; k == capped || k == paced {
		id := fmt.Sprintf("%s/%d", a.Ref, a.Number)
		h.l.write(boutBegan, k+"|"+a.Job.Lane+"|"+id)
		defer h.l.write(boutEnded, id)
	}
	if a.Schedule != "" {
		h.l.write(occurred, fmt.Sprintf("%s|%d|%s", a.Schedule, a.Occurrence.UnixMicro(), a.Ref))
	}
	if isEarly {
		h.l.write(early, string(a.Ref))
	}
	time.Sleep(rand.N(h.slow))
	if rand.N(100) >= h.fail {
		h.l.write(finished, string(a.Ref))
		return nil
	}
	h.l.write(failed, string(a.Ref))
	if rand.N(100) < h.dead {
		return durable.Discard(errMeant)
	}
	if rand.N(100) < h.cancel {
		h.canceling.Go(func() {
			time.Sleep(rand.N(100 * time.Millisecond))
			cancel(h.q, h.l, a.Ref)
		})
	}
	return durable.RetryAfter(500*time.Millisecond+rand.N(time.Second), errMeant)
}

// Small buckets, so that jobs cascade and buckets close all the time.
const (
	nearBucket = time.Second
	farBucket  = 10 * time.Second
	leadOfFar  = 2 * time.Second // before it begins a far bucket is moved to its near ones
	settle     = 2 * time.Second // after its end a near one is closed
)

func buckets() jetstream.Option {
	return jetstream.Buckets(nearBucket, farBucket, leadOfFar, settle)
}

func connect(ctx context.Context, role string) (driver.Engine, error) {
	if strings.HasPrefix(os.Getenv(envURL), "postgres:") {
		return connectPostgres(ctx)
	}
	if role == "embedded" || os.Getenv(envURL) == "" {
		return embedded.Open(ctx, os.Getenv(envStore), embedded.With(buckets()))
	}
	nc, err := nats.Connect(os.Getenv(envURL), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.RetryOnFailedConnect(true))
	if err != nil {
		return nil, err
	}
	replicas := 1
	if os.Getenv(envNodes) == "3" {
		replicas = 3
	}
	for { // a server or a cluster that has just been started
		try, cancel := context.WithTimeout(ctx, 15*time.Second)
		e, err := jetstream.Connect(try, nc, buckets(), jetstream.Replicas(replicas))
		cancel()
		if err == nil || ctx.Err() != nil {
			return e, err
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// produce adds jobs that are due soon, or a cascade away, and cancels a tenth of them.
func produce(ctx context.Context, q *durable.Queue, l *ledger, rate int, near, far time.Duration) {
	t := time.NewTicker(time.Second / time.Duration(rate))
	defer t.Stop()
	race, kinds, lanes := number(envRace, 0), kindsOf("producer"), number(envLanes, 0)
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		wg.Go(func() {
			job := durable.Job{Kind: kinds[rand.N(len(kinds))], After: rand.N(near), MaxAttempts: 1000}
			if rand.N(3) == 0 {
				job.After = rand.N(far)
			}
			if lanes > 0 {
				job.Lane = fmt.Sprint("lane", rand.N(lanes))
			}
			if rand.N(20) == 0 {
				job.Key = fmt.Sprint(rand.N(1000))
			}
			ref, err := q.Add(ctx, job)
			if err != nil {
				if job.Key == "" && errors.Is(err, durable.ErrExists) {
					l.write(wrong, "none")
				}
				if !errors.Is(err, durable.ErrExists) && ctx.Err() == nil {
					l.write(rejected, "none")
				}
				return
			}
			l.write(accepted, string(ref))
			races := rand.N(100) < race
			if !races && rand.N(10) > 0 {
				return
			}
			if races || rand.N(3) == 0 {
				select {
				case <-ctx.Done():
					return
				case <-time.After(job.After - rand.N(300*time.Millisecond)):
				}
			}
			cancel(q, l, ref)
		})
	}
}

// cancel writes down what it asks before it does, since the process may be killed before
// it has the answer. A process that is told to end waits for it.
func cancel(q *durable.Queue, l *ledger, ref durable.Ref) {
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	l.write(asked, string(ref))
	switch ok, err := q.Cancel(ctx, ref); {
	case err != nil:
		l.write(unsure, string(ref))
	case ok:
		l.write(canceled, string(ref))
	default:
		l.write(refused, string(ref))
	}
}

// awaitEmpty returns when nothing waits or runs any more. It looks twice, since what
// fails and is stored anew while it looks may be where it does not.
func awaitEmpty(ctx context.Context, q *durable.Queue) {
	for seen := 0; ctx.Err() == nil && seen < 2; time.Sleep(time.Second) {
		if seen++; !empty(ctx, q) {
			seen = 0
		}
	}
}

// empty looks for the first job only: a list of all takes the time that they need to run.
func empty(ctx context.Context, q *durable.Queue) bool {
	for info, err := range q.All(ctx, durable.Filter{}) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "drain:", err)
			return false
		}
		if info.State != durable.Dead {
			return false
		}
	}
	return true
}

// listDead writes down what is dead.
func listDead(ctx context.Context, q *durable.Queue, l *ledger) {
	for info, err := range q.All(ctx, durable.Filter{State: durable.Dead}) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "drain:", err)
			return
		}
		l.write(listed, string(info.Ref))
	}
}

// serve runs a NATS server, alone or as one of three.
func serve(ctx context.Context) error {
	port, err := strconv.Atoi(os.Getenv(envPort))
	if err != nil {
		return err
	}
	opts := &server.Options{
		ServerName: os.Getenv(envName), Host: "127.0.0.1", Port: port, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: os.Getenv(envStore), SyncAlways: true,
		JetStreamMaxStore: 4 << 30, JetStreamMaxMemory: 1 << 30,
	}
	if routes := os.Getenv(envRoutes); routes != "" {
		ports := strings.Split(routes, ",")
		opts.Cluster.Name, opts.Cluster.Host = "chaos", "127.0.0.1"
		if opts.Cluster.Port, err = strconv.Atoi(ports[0]); err != nil {
			return err
		}
		for _, p := range ports[1:] {
			opts.Routes = append(opts.Routes, &url.URL{Scheme: "nats", Host: "127.0.0.1:" + p})
		}
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	srv.Start()
	if !srv.ReadyForConnections(patience) {
		return errors.New("the server does not start")
	}
	<-ctx.Done()
	srv.Shutdown()
	srv.WaitForShutdown()
	return nil
}
