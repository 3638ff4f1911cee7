//go:build unix

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/testservers/pgserver"
)

// peer is a queue on a database of its own.
type peer interface {
	// add stores jobs in one call.
	add(jobs []timedJob)
	// work runs jobs until ctx ends, and then until their ends are written down. It calls ran for
	// each, on any goroutine.
	work(ctx context.Context, ran func(timedJob))
}

// onPool are the peers on PostgreSQL.
var onPool = []struct {
	name, note string
	open       func(*pgxpool.Pool) peer
}{
	{"tickwheel", "durable/postgres, 1000 handlers at once, all else by default; callers at one time share a commit", openOurs},
	{"River", "v0.51.1, 2000 workers, fetches at most every 2 ms and polls every 5 ms, which is its own benchmark's setting with a shorter poll; its scheduler runs every 5 s, which cannot be set", openRiver(2000, 2*time.Millisecond, 5*time.Millisecond)},
	{"River, defaults", "100 workers, as its documentation has it; fetches at most every 100 ms, polls every second", openRiver(100, 0, 0)},
	{"poller", "select for update skip locked, 1000 rows at most; runs and deletes them in that transaction; again after 200 ms, or at once after a full batch", openPoller},
}

// systemsOn returns the systems on a server of PostgreSQL, each with a new database whenever it is measured, and
// with forty connections.
func systemsOn(pg *pgserver.Server) (all []system) {
	admin := func(sql string) {
		c := get(pgx.Connect(background, pg.DSN()))
		defer c.Close(background)
		get(c.Exec(background, sql))
	}
	for _, one := range onPool {
		all = append(all, system{one.name, one.note, func(f func(*meter)) {
			admin("create database bench")
			defer admin("drop database bench with (force)")
			pool := get(pgxpool.New(background, strings.Replace(pg.DSN(), "/postgres?", "/bench?", 1)+"&pool_max_conns=40"))
			defer pool.Close()
			p := one.open(pool)
			if o, ok := p.(ours); ok {
				defer o.q.Close()
			}
			f(&meter{peer: p, pg: pg, pool: pool})
		}})
	}
	return all
}

// timedJob is due at a time, which was so long ahead when it was added.
type timedJob struct {
	due   time.Time
	ahead time.Duration
	lane  string
}

// payload is 100 bytes that say which job it is.
func (j timedJob) payload() []byte {
	b := make([]byte, 100)
	binary.BigEndian.PutUint64(b, uint64(j.due.UnixNano()))
	binary.BigEndian.PutUint64(b[8:], uint64(j.ahead))
	return b
}

func timedJobOf(payload []byte) timedJob {
	n := binary.BigEndian.Uint64
	return timedJob{due: time.Unix(0, int64(n(payload))), ahead: time.Duration(n(payload[8:]))}
}

func jobsAhead(n int, ahead func() time.Duration) []timedJob {
	jobs := make([]timedJob, n)
	for i := range jobs {
		d := ahead()
		jobs[i] = timedJob{due: time.Now().Add(d), ahead: d}
	}
	return jobs
}

// ours is a Queue, with jobs of some kinds.
type ours struct {
	q        *durable.Queue
	kinds    []string
	lane     string
	handling time.Duration // what a handler takes
}

var thousand = durable.WithConcurrency(1000)

func openOurs(pool *pgxpool.Pool) peer {
	return ours{q: openQueue(background, get(connectPostgres(background, pool)), thousand), kinds: []string{kind}}
}

func (o ours) add(jobs []timedJob) {
	all := make([]durable.Job, len(jobs))
	for i, j := range jobs {
		all[i] = durable.Job{Kind: o.kinds[rand.N(len(o.kinds))], Lane: o.lane, At: j.due, Payload: j.payload()}
	}
	get(o.q.AddMany(background, all...))
}

func (o ours) work(ctx context.Context, ran func(timedJob)) {
	for _, kind := range o.kinds {
		o.q.Handle(kind, func(_ context.Context, a *durable.Attempt) error {
			j := timedJobOf(a.Job.Payload)
			j.lane = a.Job.Lane
			ran(j)
			time.Sleep(o.handling)
			return nil
		})
	}
	must(o.q.Run(ctx))
}

// serverSchedules is messages with a schedule of the NATS server, which it publishes to another subject when
// their time has come. They are consumed and acknowledged.
type serverSchedules struct{ js jetstream.JetStream }

func newServerSchedules(nc *nats.Conn) serverSchedules {
	js := get(jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(10000)))
	get(js.CreateStream(background, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>", "d.>"}, AllowMsgSchedules: true, AllowMsgTTL: true}))
	return serverSchedules{js}
}

func (s serverSchedules) add(jobs []timedJob) {
	for _, j := range jobs {
		j.due = j.due.Truncate(time.Second).Add(time.Second) // they have whole seconds
		m := nats.NewMsg(fmt.Sprint("s.", rand.Int64()))
		m.Data = j.payload()
		m.Header.Set("Nats-Schedule", "@at "+j.due.UTC().Format(time.RFC3339))
		m.Header.Set("Nats-Schedule-Target", "d"+m.Subject[1:])
		get(s.js.PublishMsgAsync(m, jetstream.WithStallWait(10*time.Second)))
	}
}

func (s serverSchedules) work(ctx context.Context, ran func(timedJob)) {
	c := get(s.js.CreateConsumer(ctx, "S", jetstream.ConsumerConfig{
		FilterSubject: "d.>", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: -1, DeliverPolicy: jetstream.DeliverNewPolicy}))
	consuming := get(c.Consume(func(m jetstream.Msg) {
		ran(timedJobOf(m.Data()))
		_ = m.Ack()
	}))
	<-ctx.Done()
	consuming.Stop()
}

// riverArgs is a job of River's. It has as many bytes as those of the others, in JSON.
type riverArgs struct {
	Payload []byte `json:"p"`
}

func (riverArgs) Kind() string { return kind }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	ran func(timedJob)
}

func (w *riverWorker) Work(_ context.Context, j *river.Job[riverArgs]) error {
	w.ran(timedJobOf(j.Args.Payload))
	return nil
}

type riverQueue struct {
	client *river.Client[pgx.Tx]
	worker *riverWorker
}

// openRiver sets River up with so many workers, and how often it fetches and polls; 0: its default.
func openRiver(workers int, fetch, poll time.Duration) func(*pgxpool.Pool) peer {
	return func(pool *pgxpool.Pool) peer {
		get(get(rivermigrate.New(riverpgxv5.New(pool), nil)).Migrate(background, rivermigrate.DirectionUp, nil))
		q := &riverQueue{worker: &riverWorker{}}
		all := river.NewWorkers()
		river.AddWorker(all, q.worker)
		q.client = get(river.NewClient(riverpgxv5.New(pool), &river.Config{
			Logger:        slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})), // its errors are kept out of the tables
			FetchCooldown: fetch, FetchPollInterval: poll, Workers: all, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
		}))
		return q
	}
}

// add takes the faster of River's ways: COPY for many.
func (q *riverQueue) add(jobs []timedJob) {
	if len(jobs) == 1 {
		get(q.client.Insert(background, riverArgs{jobs[0].payload()}, &river.InsertOpts{ScheduledAt: jobs[0].due}))
		return
	}
	params := make([]river.InsertManyParams, len(jobs))
	for i, j := range jobs {
		params[i] = river.InsertManyParams{Args: riverArgs{j.payload()}, InsertOpts: &river.InsertOpts{ScheduledAt: j.due}}
	}
	get(q.client.InsertManyFast(background, params))
}

func (q *riverQueue) work(ctx context.Context, ran func(timedJob)) {
	q.worker.ran = ran
	must(q.client.Start(background))
	<-ctx.Done()
	stop, cancel := context.WithTimeout(background, time.Minute)
	defer cancel()
	if err := q.client.Stop(stop); !errors.Is(err, context.Canceled) {
		must(err)
	}
}

// poller is what textbooks have: it asks every 200 ms for up to pollMost jobs.
type poller struct{ pool *pgxpool.Pool }

const pollMost = 1000

func openPoller(pool *pgxpool.Pool) peer {
	get(pool.Exec(background, `
		create table job (id bigint generated always as identity primary key, due timestamptz not null, payload bytea not null);
		create index on job (due)`))
	return poller{pool}
}

func (p poller) add(jobs []timedJob) {
	if len(jobs) == 1 {
		get(p.pool.Exec(background, "insert into job (due, payload) values ($1, $2)", jobs[0].due, jobs[0].payload()))
		return
	}
	get(p.pool.CopyFrom(background, pgx.Identifier{"job"}, []string{"due", "payload"},
		pgx.CopyFromSlice(len(jobs), func(i int) ([]any, error) { return []any{jobs[i].due, jobs[i].payload()}, nil })))
}

func (p poller) work(ctx context.Context, ran func(timedJob)) {
	for ctx.Err() == nil {
		if p.poll(ran) < pollMost {
			sleep(ctx, 200*time.Millisecond)
		}
	}
}

// poll runs what is due, one after the other, in one transaction.
func (p poller) poll(ran func(timedJob)) int {
	var ids []int64
	must(pgx.BeginFunc(background, p.pool, func(tx pgx.Tx) error {
		rows, _ := tx.Query(background, "select id, payload from job where due <= now() order by due limit $1 for update skip locked", pollMost)
		var id int64
		var text []byte
		_, err := pgx.ForEachRow(rows, []any{&id, &text}, func() error {
			ran(timedJobOf(text))
			ids = append(ids, id)
			return nil
		})
		if err != nil || len(ids) == 0 {
			return err
		}
		_, err = tx.Exec(background, "delete from job where id = any($1)", ids)
		return err
	}))
	return len(ids)
}
