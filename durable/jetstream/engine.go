package jetstream

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/clock"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/options"
)

// Option sets up an engine that [Connect] returns.
type Option func(*options.Options)

// config is the options of one engine, with the defaults.
type config struct {
	options.Options
}

// WithQueue sets the name of the queue: letters, digits, - and _. The default is "default".
// Queues of one server are independent. Connect panics on another name.
func WithQueue(name string) Option {
	return func(o *options.Options) {
		if !validName(name) || len(name) > maxQueue {
			panic(fmt.Sprintf("jetstream: WithQueue(%.300q): use letters, digits, - and _, at most %d of them", name, maxQueue))
		}
		o.Queue = name
	}
}

// maxQueue is the largest length of a queue's name. The server takes 255 bytes for that of a stream, and a
// file system for that of a folder.
const maxQueue = 200

// WithReplicas sets on how many servers of a cluster each partition is kept when it is made:
// 1, the default, 3 or 5. Connect returns an error if the queue exists with another
// number. It panics on less than 1.
func WithReplicas(n int) Option {
	return func(o *options.Options) {
		if n < 1 {
			panic(fmt.Sprintf("jetstream: WithReplicas(%d): less than 1", n))
		}
		o.Replicas = n
		o.Given = append(o.Given, replicasName)
	}
}

// WithPartitions sets the number of streams over which the queue is spread when it is made;
// the default is one. It cannot be changed later: Connect with another number returns an
// error, and without this option it takes the stored number. A partition carries some
// 10,000 jobs a second. Connect panics on less than 1, or more than 1000.
func WithPartitions(n int) Option {
	return func(o *options.Options) {
		if n < 1 || n > maxPartitions {
			panic(fmt.Sprintf("jetstream: WithPartitions(%d): not from 1 to %d", n, maxPartitions))
		}
		o.Partitions = n
		o.Given = append(o.Given, partitionsName)
	}
}

const maxPartitions = 1000

// WithMaxBytes sets how large each partition may get on a server's disk when it is made. A
// fifth of it is kept free for the ends of jobs: Add returns durable.ErrFull when the
// rest is full. The default, 0, leaves only the limits of the account and the server, which
// NATS.md describes under "A full store". Connect returns an error
// if the queue exists with another limit. It panics on less than 1 MiB.
func WithMaxBytes(n int64) Option {
	return func(o *options.Options) {
		if n != 0 && n < 1<<20 {
			panic(fmt.Sprintf("jetstream: WithMaxBytes(%d): less than 1 MiB", n))
		}
		o.MaxBytes = n
		o.Given = append(o.Given, maxBytesName)
	}
}

// Buckets are the buckets of time of a queue: the widths of near and far buckets; how long
// before its begin a far bucket is moved to its near ones; and how long after its end a near
// one is closed at the earliest. A field that is 0 has its default: 5s, 1h, 10m and 10s.
type Buckets struct{ Near, Far, Lead, Settle time.Duration }

// WithBuckets sets the buckets of time when the queue is made. A kind with a limit of its own
// has a consumer in each near bucket, so a queue with many such kinds wants wider ones: with
// 64 kinds, and a job of each in a second, buckets of 12s took 0.8 of the processor time, and
// buckets of 1s 2.3 times as much. Narrower buckets keep less of the jobs that have just
// ended. A near bucket, the Queue's WithAhead, half a second and the time of a commit have to
// be less than half a lease, and less than Lead. Connect returns an error if the queue exists
// with other values. It panics if one is negative, Near is less than a millisecond, or Far is
// not a multiple of Near.
func WithBuckets(b Buckets) Option {
	return func(o *options.Options) {
		d := defaultBuckets
		all := options.Buckets{
			Near: cmp.Or(b.Near, d.Near), Far: cmp.Or(b.Far, d.Far), Lead: cmp.Or(b.Lead, d.Lead), Settle: cmp.Or(b.Settle, d.Settle),
		}
		if all.Near < time.Millisecond || all.Far <= 0 || all.Far%all.Near != 0 || all.Lead <= 0 || all.Settle <= 0 {
			panic(fmt.Sprintf("jetstream: WithBuckets(%+v)", b))
		}
		o.Buckets = all
		o.Given = append(o.Given, bucketsName)
	}
}

// WithDomain sets the JetStream domain that has the queue, for a connection to a server outside
// of it, such as a leaf node that has a JetStream of its own. By default it is that of the
// server. Connect panics on a name that is not of letters, digits, - and _.
func WithDomain(name string) Option {
	return func(o *options.Options) {
		if !validName(name) {
			panic(fmt.Sprintf("jetstream: WithDomain(%q): use letters, digits, - and _", name))
		}
		o.Domain = name
	}
}

// engine is a [driver.Engine] on one or more streams.
type engine struct {
	*flowControl
	parts   []*part
	salt    string
	close   context.CancelCauseFunc
	notices *notices
}

func newEngine(queue string, parts []*part, end context.CancelCauseFunc) *engine {
	first := parts[0]
	e := &engine{parts: parts, salt: first.salt, close: end, notices: &notices{nc: first.nc, queue: queue}}
	e.flowControl = &flowControl{notices: e.notices}
	for _, p := range parts {
		p.salt = first.salt
		e.flowControl.parts = append(e.flowControl.parts, p.quotas)
	}
	first.forget = append(first.forget, func() { e.known.Store(nil) })
	return e
}

// part is a stream, and what is known of it.
type part struct {
	*keys
	admission *admission
	queues    *queues
	records   *records
	quotas    *quotas
	changes   *changes
	inserts   *inserts
	schedules *schedules
	listings  *listings
	made      bool // by this engine

	leases *leases
}

// Connect returns an engine on a server's or a cluster's JetStream (NATS 2.12.7 or later),
// and makes the queue's streams if they are not there; see [WithExistingOnly]. An option that is
// not given takes the stored value, and one that contradicts it is an error. While the
// servers are starting, or elect a leader, Connect repeats its requests until ctx ends,
// or for a minute if ctx has no deadline. A server's refusal is an error at once, and so is
// durable.ErrVersion: a newer version of this package has stored the queue.
//
// Connect refuses a stream whose settings lose jobs, and names them, such as a max_age. If
// somebody changes them later, Add and Health return such an error, and it is in the log, until they
// are right again. A server with fewer than 16 consumers for the stream (max_consumers) is refused,
// too. If they do not suffice for all sets of kinds (see above, Kinds), Health and the log say so.
//
// If the server denies a request of the connection's user, in Connect or later, the error
// wraps nats.ErrPermissionViolation and names the subject. For this Connect wraps the
// connection's error handler; a handler that is set later must call the earlier one.
// NATS.md says which rights a user needs.
//
// A job that is larger than the server's max_payload, as it is stored, is durable.ErrInvalid: with
// the default of 1 MiB every job fits. Connect returns an error if max_payload is less than 16 KiB.
//
// The connection stays the caller's: Close of the engine leaves it open. It must
// reconnect for ever: make it with nats.MaxReconnects(-1). Any other connection is an
// error, since the queue would stand still once it gave up. Connect panics on nil.
func Connect(ctx context.Context, nc *nats.Conn, opts ...Option) (driver.Engine, error) {
	if nc == nil {
		panic("jetstream: Connect: nil connection")
	}
	c := config{options.Options{Queue: "default", Replicas: 1, Partitions: 1, Buckets: defaultBuckets, StaleAge: staleAge, Version: wireVersion}}
	for _, opt := range opts {
		if opt == nil {
			panic("jetstream: Connect: nil Option")
		}
		opt(&c.Options)
	}
	if n := nc.Opts.MaxReconnect; n >= 0 || !nc.Opts.AllowReconnect {
		return nil, fmt.Errorf("jetstream: Connect: the connection gives up after %d tries to reconnect: make it with nats.MaxReconnects(-1)", max(n, 0))
	}
	if n := nc.MaxPayload(); n < leastMaxPayload {
		return nil, fmt.Errorf("jetstream: Connect: the server's max_payload is %d, less than %d", n, leastMaxPayload)
	}
	if c.Domain == "" {
		if err := checkServer(nc, leastServer); err != nil {
			return nil, fmt.Errorf("jetstream: Connect: %w", err)
		}
	}
	closed, cancel := context.WithCancelCause(c.alive())
	bound := newConn(nc, closed)
	denials := watchDenials(nc)
	if err := c.noJetStream(ctx, bound); err != nil {
		cancel(driver.ErrClosed)
		return nil, fmt.Errorf("jetstream: Connect: %w", err)
	}
	var parts []*part
	for i := 0; i < c.Partitions; i++ { // the first one says how many there are
		err := patiently(ctx, func(try context.Context) error {
			p, err := openPart(try, &c, denials, i, bound)
			if err == nil {
				parts = append(parts, p)
			}
			return err
		})
		if err != nil {
			cancel(driver.ErrClosed)
			return nil, fmt.Errorf("jetstream: Connect: %w", err)
		}
	}
	for _, p := range parts {
		if !p.admission.local {
			if err := p.admission.readAccount(ctx); err != nil {
				cancel(driver.ErrClosed)
				return nil, fmt.Errorf("jetstream: Connect: %w", err)
			}
		}
		if p.made {
			p.admission.keepReserve(ctx)
		}
	}
	return newEngine(c.Queue, parts, cancel), nil
}

// alive returns a context that ends when the server has failed for good.
func (c *config) alive() context.Context {
	if c.Own == nil || c.Own.Alive == nil {
		return context.Background()
	}
	return c.Own.Alive
}

// api returns the prefix of the subjects of the server's API.
func (c *config) api() string {
	if c.Domain == "" {
		return "$JS.API."
	}
	return "$JS." + c.Domain + ".API."
}

// openPart finds or makes a partition's stream. The first one to make it decides its
// geometry.
func openPart(ctx context.Context, c *config, d *denials, i int, nc *conn) (*part, error) {
	p := c.newPart(nc, d, streamName(c.Queue, i), i)
	ctx, stop := d.during(ctx, api(p.name))
	defer stop()
	err := p.open(ctx, c)
	if err != nil {
		err = denied(ctx, err)
	}
	return p, err
}

// newPart returns a partition of which nothing is read yet.
func (c *config) newPart(nc *conn, d *denials, name string, number int) *part {
	st := &stream{
		client:  &client{nc: nc, api: c.api(), denials: d, name: name, closed: nc.ended},
		batches: make(chan struct{}, maxBatches), version: c.Version, shift: c.Shift, nonce: rand.Text(), staleAge: c.StaleAge,
	}
	b := &buckets{stream: st, subjects: subjects{root: name, number: number}}
	st.landmarks, st.forget = b.subject("c."), []func(){func() { b.learn(bottom) }} // read before the next poll, or after a conflict
	a := &admission{buckets: b, local: c.Own != nil}
	st.room = a.makeRoom
	k, q := &keys{&finder{b}}, newQueues(b)
	r := &records{b, q}
	is := newInserts(k, r, a)
	p := &part{
		keys: k, admission: a, queues: q, records: r, quotas: newQuotas(b), inserts: is,
		changes: &changes{k, r, a}, schedules: &schedules{k, is}, listings: &listings{k.finder, q},
		leases: newLeases(b),
	}
	return p
}

func (p *part) open(ctx context.Context, c *config) error {
	info, err := p.findOrMake(ctx, c)
	if err != nil {
		return fmt.Errorf("stream %s: %w", p.name, err)
	}
	version, err := versionOf(info.Config.Metadata[metaVersion], p.version) // before anything else is read
	if err != nil {
		return fmt.Errorf("stream %s: %w", p.name, err)
	}
	if err := c.compare(&info.Config); err != nil {
		return fmt.Errorf("stream %s: %w", p.name, err)
	}
	atomic := info.Config.AllowAtomicPublish
	p.made = info.Config.Metadata[metaComplete] == ""
	if info, err = p.updateStream(ctx, c, info, version); err != nil {
		return fmt.Errorf("stream %s: %w", p.name, err)
	}
	if !atomic && !info.Config.AllowAtomicPublish {
		return tooOld(p.nc.nc, leastServer)
	}
	if err := p.checkSettings(&info.Config); err != nil {
		return err
	}
	if p.geometry, err = parseGeometry(info.Config.Metadata[metaBuckets]); err != nil {
		return err
	}
	n, _ := strconv.Atoi(info.Config.Metadata[metaPartitions]) // compare has checked it
	WithPartitions(n)(&c.Options)                              // all partitions have to agree with the first
	p.of = n
	p.salt, p.replicas = c.Queue, info.Config.Replicas
	p.admission.maxBytes = max(0, info.Config.MaxBytes)
	if c.Own != nil {
		p.free = c.Own.Free
	}
	if p.clock, err = clock.New(ctx, p.admission.readServer); err == nil {
		err = p.readWatermark(ctx)
	}
	if err == nil && c.Own != nil {
		err = p.purge(ctx, p.workerSubject("*"), 0)
	}
	return err
}

// The names in a stream's metadata.
const (
	metaBuckets    = "tickwheel-buckets"
	metaPartitions = "tickwheel-partitions"
	metaComplete   = "tickwheel-complete"
)

// of returns the partition of a key, or else of an ID.
func (e *engine) of(key, id string) *part {
	if key == "" {
		key = id
	}
	return e.parts[crc32.ChecksumIEEE([]byte(key))%uint32(len(e.parts))]
}

// find returns the partition and the address of a Ref.
func (e *engine) find(r driver.Ref) (*part, address, error) {
	a, err := parseRef(r, e.salt, len(e.parts))
	if err != nil {
		return nil, a, err
	}
	return e.parts[a.part], a, nil
}

// spread calls f for each partition with the indices of the elements that are its own,
// all at once.
func spread(e *engine, n int, of func(i int) *part, f func(p *part, indices []int)) {
	byPart := make([][]int, len(e.parts))
	for i := range n {
		if p := of(i); p != nil {
			byPart[p.number] = append(byPart[p.number], i)
		}
	}
	var wg sync.WaitGroup
	for k, indices := range byPart {
		switch {
		case len(indices) == n:
			f(e.parts[k], indices)
		case len(indices) > 0:
			wg.Go(func() { f(e.parts[k], indices) })
		}
	}
	wg.Wait()
}

func (e *engine) Insert(ctx context.Context, recs []driver.Record) ([]driver.Ref, []error) {
	refs, errs := make([]driver.Ref, len(recs)), make([]error, len(recs))
	spread(e, len(recs), func(i int) *part { return e.of(recs[i].Key, recs[i].ID) }, func(p *part, indices []int) {
		stored, failed := p.inserts.insert(ctx, pick(recs, indices))
		for k, i := range indices {
			refs[i], errs[i] = stored[k], failed[k]
		}
	})
	return refs, errs
}

func (e *engine) Cancel(ctx context.Context, refs []driver.Ref) ([]bool, []error) {
	oks, errs := make([]bool, len(refs)), make([]error, len(refs))
	addresses := make([]address, len(refs))
	spread(e, len(refs), func(i int) (p *part) {
		p, addresses[i], errs[i] = e.find(refs[i])
		return p
	}, func(p *part, indices []int) {
		for _, i := range indices {
			oks[i], errs[i] = p.changes.cancel(ctx, addresses[i])
		}
	})
	return oks, errs
}

func (e *engine) Move(ctx context.Context, ref driver.Ref, at time.Time) (bool, error) {
	p, a, err := e.find(ref)
	if err != nil {
		return false, err
	}
	return p.changes.move(ctx, a, at)
}

func (e *engine) Signal(ctx context.Context, key string, payload []byte, at time.Time) (bool, error) {
	return e.of(key, "").changes.signal(ctx, key, payload, at)
}

func (e *engine) Redrive(ctx context.Context, ref driver.Ref, at time.Time) error {
	p, a, err := e.find(ref)
	if err != nil {
		return err
	}
	return p.changes.redrive(ctx, a, at)
}

func (e *engine) Delete(ctx context.Context, ref driver.Ref) error {
	p, a, err := e.find(ref)
	if err != nil {
		return err
	}
	return p.changes.deleteDead(ctx, a)
}

func (e *engine) Lookup(ctx context.Context, key string) (driver.Ref, error) {
	p := e.of(key, "")
	h, err := p.keyHolder(ctx, key)
	switch {
	case err != nil:
		return "", err
	case !h.alive:
		for err = errBusy; errors.Is(err, errBusy) && ctx.Err() == nil; {
			if h, err = p.keyHolder(ctx, key); err == nil && !h.alive {
				_, err = p.ifStands(ctx, p.readingOf(&h), driver.ErrNotFound)
			}
		}
		return h.ref, err
	}
	return h.ref, nil
}

// CancelRunning stores a request for the worker that runs a job.
func (e *engine) CancelRunning(ctx context.Context, ref driver.Ref) (bool, error) {
	p, a, err := e.find(ref)
	if err != nil {
		return false, err
	}
	return p.changes.cancelRunning(ctx, a, ref, func(worker string) {
		e.notices.publish("cancel."+worker, []byte(ref))
		e.notices.notifyWorker(ctx, worker)
	})
}

func (e *engine) Get(ctx context.Context, ref driver.Ref) (driver.Info, error) {
	p, a, err := e.find(ref)
	if err != nil {
		return driver.Info{}, err
	}
	return p.describe(ctx, ref, a)
}

func (e *engine) Scan(ctx context.Context, f driver.Filter) iter.Seq2[driver.Info, error] {
	return inParts(e, func(p *part) iter.Seq2[driver.Info, error] { return p.scan(ctx, f) })
}

// Now is the clock of the first partition's leader. Servers of a cluster agree to within
// what NTP does; all partitions' times are taken from their own leaders.
func (e *engine) Now(ctx context.Context) (time.Time, time.Duration, error) {
	if err := e.parts[0].sync(ctx); err != nil {
		return time.Time{}, 0, err
	}
	t, off := e.parts[0].clock.Now()
	return t, off, nil
}

func (e *engine) Close() error {
	e.close(driver.ErrClosed)
	return nil
}
