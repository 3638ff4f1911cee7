package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/clock"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/options"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// Connect returns an engine on a server's or a cluster's JetStream (NATS 2.12.7 or later),
// and makes the queue's streams if they are not there; see [WithExistingOnly]. An option
// that is not given takes the stored value, and one that contradicts it is an error. While
// the servers are starting, or elect a leader, Connect repeats its requests until ctx ends,
// or for a minute if ctx has no deadline. A server's refusal is an error at once, and so is
// durable.ErrVersion: a newer version of this package has stored the queue.
//
// Connect refuses a stream whose settings lose jobs, and names them, such as a max_age. If
// somebody changes them later, Add and Health return such an error, and it is in the log,
// until they are right again. A server with fewer than 16 consumers for the stream
// (max_consumers) is refused, too. If they do not suffice for all sets of kinds (see above,
// Kinds), Health and the log say so.
//
// If the server denies a request of the connection's user, in Connect or later, the error
// wraps nats.ErrPermissionViolation and names the subject. For this Connect wraps the
// connection's error handler; a handler that is set later must call the earlier one.
// NATS.md says which rights a user needs.
//
// A job that is larger than the server's max_payload, as it is stored, is
// durable.ErrInvalid: with the default of 1 MiB every job fits. Connect returns an error if
// max_payload is less than 16 KiB.
//
// The connection stays the caller's: Close of the engine leaves it open. It must reconnect
// for ever: make it with nats.MaxReconnects(-1). Any other connection is an error, since
// the queue would stand still once it gave up. Connect panics on nil.
func Connect(ctx context.Context, nc *nats.Conn, opts ...Option) (driver.Engine, error) {
	c := newConfig("Connect", nc, opts)
	if n := nc.Opts.MaxReconnect; n >= 0 || !nc.Opts.AllowReconnect {
		return nil, fmt.Errorf("jetstream: Connect: the connection gives up after %d tries to reconnect: make it with nats.MaxReconnects(-1)", max(n, 0))
	}
	if err := awaitServer(ctx, nc); err != nil {
		return nil, fmt.Errorf("jetstream: Connect: %w", err)
	}
	if n := nc.MaxPayload(); n < stream.LeastMaxPayload {
		return nil, fmt.Errorf("jetstream: Connect: the server's max_payload is %d, less than %d", n, stream.LeastMaxPayload)
	}
	if err := stream.CheckServer(nc, stream.LeastServer); err != nil && c.Domain == "" {
		return nil, fmt.Errorf("jetstream: Connect: %w", err)
	}
	closed, cancel := context.WithCancelCause(c.alive())
	parts, err := c.openAll(ctx, stream.WatchDenials(nc), stream.NewConn(nc, closed))
	if err != nil {
		cancel(driver.ErrClosed)
		return nil, fmt.Errorf("jetstream: Connect: %w", err)
	}
	return newEngine(c.Queue, parts, cancel), nil
}

// awaitServer waits for the first server of a connection that is made with nats.RetryOnFailedConnect. Until it
// has greeted, its version is not known, and its max_payload is 0.
func awaitServer(ctx context.Context, nc *nats.Conn) error {
	return patiently(ctx, func(context.Context) error {
		if nc.MaxPayload() == 0 && !nc.IsClosed() {
			return nats.ErrDisconnected
		}
		return nil
	})
}

// newConfig returns the options of a call, with the defaults. It panics on nil, before
// anything is sent. Backup and Restore pass over the options that are not theirs.
func newConfig(call string, nc *nats.Conn, opts []Option) *config {
	if nc == nil {
		panic(fmt.Sprintf("jetstream: %s: nil connection", call))
	}
	c := &config{options.Options{Queue: "default", Replicas: 1, Partitions: 1, Buckets: defaultBuckets, StaleAge: staleAge, Version: wireVersion}}
	for _, opt := range opts {
		if opt == nil {
			panic(fmt.Sprintf("jetstream: %s: nil Option", call))
		}
		opt(&c.Options)
	}
	return c
}

// openAll opens the partitions, one after the other: the first one says how many there are,
// and which buckets they have. The reserve is stored when all of them are there. An
// error leaves the streams that were made: the next Connect finds them, and makes the rest.
func (c *config) openAll(ctx context.Context, d *stream.Denials, nc *stream.Conn) (parts []*part, err error) {
	if err := c.noJetStream(ctx, nc); err != nil {
		return nil, err
	}
	for i := 0; i < c.Partitions; i++ { // the first one says how many there are
		err := patiently(ctx, func(try context.Context) error {
			p, err := openPart(try, c, d, i, nc)
			if err == nil {
				parts = append(parts, p)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	for _, p := range parts {
		if !p.admission.local {
			if err := p.admission.readAccount(ctx); err != nil {
				return nil, err
			}
		}
		if p.made {
			p.admission.keepReserve(ctx)
		}
	}
	return parts, nil
}

// openPart finds or makes a partition's stream. The first one to make it decides its
// geometry. A try that was cut off is of no use, and the next begins with a new part, so
// nothing that was half read is used.
func openPart(ctx context.Context, c *config, d *stream.Denials, i int, nc *stream.Conn) (*part, error) {
	p := c.newPart(nc, d, streamName(c.Queue, i), i)
	ctx, stop := d.During(ctx, stream.APIOf(p.Name))
	defer stop()
	if err := p.open(ctx, c); err != nil {
		return nil, stream.Denied(ctx, err)
	}
	return p, nil
}

// open reads all that is fixed of a stream, and then how it stands. The version is compared
// before anything else is read, since a newer one may have changed what the rest means. The
// clock is read before the watermark is used, and both before any job is stored or read.
//
// A server of the engine's own has no other workers, so the heartbeats of those before are
// removed: their claims are taken over at once, and not after a lease.
func (p *part) open(ctx context.Context, c *config) error {
	info, err := p.findOrMake(ctx, c)
	if err != nil {
		return fmt.Errorf("stream %s: %w", p.Name, err)
	}
	version, err := stream.VersionOf(info.Config.Metadata[stream.MetaVersion], p.Version) // before anything else is read
	if err != nil {
		return fmt.Errorf("stream %s: %w", p.Name, err)
	}
	if err := c.compare(&info.Config); err != nil {
		return fmt.Errorf("stream %s: %w", p.Name, err)
	}
	atomic := info.Config.AllowAtomicPublish
	p.made = info.Config.Metadata[metaComplete] == ""
	if info, err = p.updateStream(ctx, c, info, version); err != nil {
		return fmt.Errorf("stream %s: %w", p.Name, err)
	}
	if !atomic && !info.Config.AllowAtomicPublish {
		return stream.TooOld(p.Conn.NC, stream.LeastServer)
	}
	if err := stream.CheckSettings(&info.Config, p.Name, p.Conn.MaxPayload()); err != nil {
		return err
	}
	if p.geometry, err = parseGeometry(info.Config.Metadata[metaBuckets]); err != nil {
		return err
	}
	p.of, _ = strconv.Atoi(info.Config.Metadata[metaPartitions]) // compare has checked it
	WithPartitions(p.of)(&c.Options)                             // all partitions have to agree with the first
	p.salt = c.Queue
	p.LearnReplicas(info.Config.Replicas)
	p.admission.maxBytes = max(0, info.Config.MaxBytes)
	if c.Own != nil {
		p.Free = c.Own.Free
	}
	if p.Clock, err = clock.New(ctx, p.admission.readServer); err == nil {
		err = p.readWatermark(ctx)
	}
	if err == nil && c.Own != nil {
		err = p.PurgeAll(ctx, p.workerSubject("*"))
	}
	return err
}

// The names in a stream's metadata.
const (
	metaBuckets    = "tickwheel-buckets"
	metaPartitions = "tickwheel-partitions"
	metaComplete   = "tickwheel-complete"
)

// ErrNoQueue is the error of Connect with [WithExistingOnly] if the queue does not exist.
var ErrNoQueue = errors.New("jetstream: the queue does not exist")

// errDiffers: an option contradicts the queue that is there.
var errDiffers = errors.New("jetstream: the queue exists and differs")

// compare returns an error if an option that was given contradicts a stream. A process that has
// its own server may change the limit of a stream; see limit.
func (c *config) compare(s *natsjs.StreamConfig) error {
	if n, err := strconv.Atoi(s.Metadata[metaPartitions]); err != nil || n < 1 || n > maxPartitions {
		return fmt.Errorf("%w: cannot read its number of partitions %q", driver.ErrStorage, s.Metadata[metaPartitions])
	}
	for _, o := range []struct{ name, stored, given string }{
		{replicasName, strconv.Itoa(s.Replicas), strconv.Itoa(c.Replicas)},
		{partitionsName, s.Metadata[metaPartitions], strconv.Itoa(c.Partitions)},
		{maxBytesName, strconv.FormatInt(max(0, s.MaxBytes), 10), strconv.FormatInt(c.MaxBytes, 10)},
		{bucketsName, s.Metadata[metaBuckets], geometryOf(c.Buckets).String()},
	} {
		if o.stored == o.given || !slices.Contains(c.Given, o.name) || o.name == maxBytesName && c.Own != nil {
			continue
		}
		return fmt.Errorf("%w: %s: the stream has %s, the program asks for %s", errDiffers, o.name, o.stored, o.given)
	}
	return nil
}

// findOrMake returns what the server says of a partition's stream, which it makes if it is
// not there. If two make it at one time, one gets CodeNameInUse, and takes the other's stream
// as it is: compare finds settings that contradict its options. The conditions of the writes
// do the work of the server's window for duplicates, so that is short.
func (p *part) findOrMake(ctx context.Context, c *config) (*natsjs.StreamInfo, error) {
	info := &natsjs.StreamInfo{}
	err := p.Ask(ctx, "STREAM.INFO."+p.Name, nil, info)
	if !stream.IsCode(err, stream.CodeNoStream) {
		return info, err
	}
	if c.Existing {
		return nil, fmt.Errorf("%w: %q", ErrNoQueue, c.Queue)
	}
	err = p.Ask(ctx, "STREAM.CREATE."+p.Name, natsjs.StreamConfig{
		Name: p.Name, Subjects: []string{p.Name + ".>"}, Storage: natsjs.FileStorage,
		Retention: natsjs.LimitsPolicy, Discard: natsjs.DiscardNew, Replicas: c.Replicas, MaxBytes: cmp.Or(c.most(c.Partitions), -1),
		AllowDirect: true, AllowMsgTTL: true, AllowAtomicPublish: true, AllowRollup: true,
		Duplicates: time.Second, // not used: the default would remember two minutes
		Metadata: map[string]string{
			metaBuckets: geometryOf(c.Buckets).String(), metaPartitions: strconv.Itoa(c.Partitions), stream.MetaVersion: strconv.Itoa(p.Version),
		},
	}, info)
	if stream.IsCode(err, stream.CodeNameInUse) { // another one was faster
		err = p.Ask(ctx, "STREAM.INFO."+p.Name, nil, info)
	}
	return info, err
}

// updateStream changes what may be changed of a stream, in one update: its limit, its
// version, what the engine needs of the server, and that it is complete. A new stream's
// metadata is changed so that the server writes what it knows of the stream once more. When
// it is killed while it makes a stream, the file may be there without its checksum, and a
// start passes the stream over; a stream that is made anew then has all messages, but does
// not write a file that is there. It would be passed over at each start.
func (p *part) updateStream(ctx context.Context, c *config, info *natsjs.StreamInfo, version int) (*natsjs.StreamInfo, error) {
	s := info.Config
	s.MaxBytes = c.limit(info)
	lacks := stream.AllowAll(&s) // an older server has passed over it
	if !lacks && s.Metadata[metaComplete] != "" && version == p.Version && s.MaxBytes == info.Config.MaxBytes {
		return info, nil
	}
	s.Metadata = maps.Clone(s.Metadata)
	s.Metadata[metaComplete], s.Metadata[stream.MetaVersion] = "1", strconv.Itoa(p.Version)
	updated := &natsjs.StreamInfo{}
	return updated, p.Ask(ctx, "STREAM.UPDATE."+p.Name, s, updated)
}

// limit returns how large a stream may get. A process that has the queue alone says so anew
// each time, but leaves room for the ends of the jobs that are there.
//
// It never shrinks below what is stored and a quarter more: a stream above its limit takes
// no writes, and so no ends.
func (c *config) limit(info *natsjs.StreamInfo) int64 {
	partitions, _ := strconv.Atoi(info.Config.Metadata[metaPartitions]) // compare has checked it
	most := c.most(partitions)
	if c.Own == nil || c.Existing || most == 0 {
		return info.Config.MaxBytes
	}
	used := int64(info.State.Bytes)
	return max(most, used+used/4)
}

// most is how large a stream of so many may get, 0 for no limit.
func (c *config) most(partitions int) int64 {
	if c.Own == nil || c.MaxBytes > 0 {
		return c.MaxBytes
	}
	return c.Own.MaxStore / int64(partitions)
}

const (
	connectTimeout = time.Minute            // of a Connect without a deadline
	firstTry       = 2 * time.Second        // each one may take twice as long as the last
	longestTry     = 30 * time.Second       // and this at most
	tryAgainAfter  = 100 * time.Millisecond // when the answer was that it is too early
)

// patiently calls f, which may be called any number of times, until it succeeds, is
// refused or ctx ends. A question that nobody answers is usual while servers start or
// elect a leader: what was sent to the one that is gone is lost, and to wait for its
// answer as long as ctx lasts is to wait for nothing.
//
// The first try is short, and each takes twice as long as the last: a question to a server
// that is gone costs two seconds, and one to a cluster that is slow is not repeated for
// ever. A refusal ends it at once, since no time makes it better.
func patiently(ctx context.Context, f func(try context.Context) error) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, connectTimeout)
		defer cancel()
	}
	for patience := firstTry; ; patience = min(2*patience, longestTry) {
		try, cancel := context.WithTimeout(ctx, patience)
		err := f(try)
		cancel()
		if err == nil || stream.IsRefusal(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; the last try: %w", context.Cause(ctx), err)
		case <-time.After(tryAgainAfter):
		}
	}
}

// noJetStream returns an error if nobody answers on a connection to a server without
// JetStream, or in the domain. Where that server has one, it may be starting, or electing a
// leader.
//
// It tries three times, and says nothing against a server that answers with an error, or
// late: only the message that nobody listens counts.
func (c *config) noJetStream(ctx context.Context, nc *stream.Conn) error {
	if has, _ := nc.NC.ConnectedServerJetStream(); has && c.Domain == "" || !nc.NC.IsConnected() {
		return nil
	}
	for range 3 {
		try, cancel := context.WithTimeout(ctx, stream.AnswerTimeout)
		_, err := nc.Request(try, nil, &nats.Msg{Subject: c.api() + "INFO"})
		cancel()
		if !errors.Is(err, nats.ErrNoResponders) {
			return nil
		}
		time.Sleep(tryAgainAfter) // a leaf node's hub may have just connected
	}
	if c.Domain != "" {
		return fmt.Errorf("no JetStream answers in the domain %q", c.Domain)
	}
	return fmt.Errorf("the server %s has no JetStream, and reaches none", nc.NC.ConnectedServerName())
}
