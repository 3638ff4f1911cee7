package jetstream

import (
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
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/options"
)

// ErrNoQueue is the error of Connect with [WithExistingOnly] if the queue does not exist.
var ErrNoQueue = errors.New("jetstream: the queue does not exist")

// errDiffers: an option contradicts the queue that is there.
var errDiffers = errors.New("jetstream: the queue exists and differs")

// WithExistingOnly prevents Connect from making the queue: it returns ErrNoQueue if the queue
// does not exist. Use it in tools, where a mistyped name must not become a queue.
func WithExistingOnly() Option {
	return func(o *options.Options) { o.Existing = true }
}

// The options that a queue stores. Connect compares those that it is called with.
const (
	replicasName   = "Replicas"
	partitionsName = "Partitions"
	maxBytesName   = "MaxBytes"
	bucketsName    = "Buckets, in microseconds"
)

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

// findOrMake returns what the server says of a partition's stream, which it makes if it is not there.
func (p *part) findOrMake(ctx context.Context, c *config) (*natsjs.StreamInfo, error) {
	info := &natsjs.StreamInfo{}
	err := p.ask(ctx, "STREAM.INFO."+p.name, nil, info)
	if !isCode(err, codeNoStream) {
		return info, err
	}
	if c.Existing {
		return nil, fmt.Errorf("%w: %q", ErrNoQueue, c.Queue)
	}
	maxBytes := c.MaxBytes
	if maxBytes == 0 {
		maxBytes = -1
	}
	err = p.ask(ctx, "STREAM.CREATE."+p.name, natsjs.StreamConfig{
		Name: p.name, Subjects: []string{p.name + ".>"}, Storage: natsjs.FileStorage,
		Retention: natsjs.LimitsPolicy, Discard: natsjs.DiscardNew, Replicas: c.Replicas, MaxBytes: maxBytes,
		AllowDirect: true, AllowMsgTTL: true, AllowAtomicPublish: true, AllowRollup: true,
		Duplicates: time.Second, // not used: the default would remember two minutes
		Metadata: map[string]string{
			metaBuckets: geometryOf(c.Buckets).String(), metaPartitions: strconv.Itoa(c.Partitions), metaVersion: strconv.Itoa(p.version),
		},
	}, info)
	if isCode(err, codeNameInUse) { // another one was faster
		err = p.ask(ctx, "STREAM.INFO."+p.name, nil, info)
	}
	return info, err
}

// updateStream changes what may be changed of a stream, in one update: its limit, its version, what
// the engine needs of the server, and that it is complete. A new stream's metadata is changed so that the server writes what it knows
// of the stream once more. When it is killed while it makes a stream, the file may be
// there without its checksum, and a start passes the stream over; a stream that is made
// anew then has all messages, but does not write a file that is there. It would be passed
// over at each start.
func (p *part) updateStream(ctx context.Context, c *config, info *natsjs.StreamInfo, version int) (*natsjs.StreamInfo, error) {
	s := info.Config
	s.MaxBytes = c.limit(info)
	lacks := allowAll(&s) // an older server has passed over it
	if !lacks && s.Metadata[metaComplete] != "" && version == p.version && s.MaxBytes == info.Config.MaxBytes {
		return info, nil
	}
	s.Metadata = maps.Clone(s.Metadata)
	s.Metadata[metaComplete], s.Metadata[metaVersion] = "1", strconv.Itoa(p.version)
	updated := &natsjs.StreamInfo{}
	return updated, p.ask(ctx, "STREAM.UPDATE."+p.name, s, updated)
}

// limit returns how large a stream may get. A process that has the queue alone says so anew
// each time, but leaves room for the ends of the jobs that are there.
func (c *config) limit(info *natsjs.StreamInfo) int64 {
	if c.Own == nil || c.Existing || c.MaxBytes == 0 {
		return info.Config.MaxBytes
	}
	used := int64(info.State.Bytes)
	return max(c.MaxBytes, used+used/4)
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
		if err == nil || isRefusal(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; the last try: %w", context.Cause(ctx), err)
		case <-time.After(tryAgainAfter):
		}
	}
}

// unanswered are the errors of a question that nobody has answered.
var unanswered = []error{
	context.DeadlineExceeded, context.Canceled, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrDisconnected,
	nats.ErrConnectionReconnecting, nats.ErrReconnectBufExceeded, nats.ErrStaleConnection, driver.ErrUncertain,
}

// isRefusal reports whether asking again is of no use: the server has said no, and does
// not say so because it has just started, or is without a leader; or what it has said
// cannot be worked with.
func isRefusal(err error) bool {
	refusal, said := errors.AsType[*apiError](err)
	if !said {
		return !slices.ContainsFunc(unanswered, func(u error) bool { return errors.Is(err, u) })
	}
	switch refusal.ErrCode {
	case 10004, 10005, 10006, 10007, 10008, 10009, 10059, 10075, 10118, 10163, 10202:
		// No leader, not a member yet, not heard of the stream yet, or too few servers for
		// so many replicas: those that are missing may be starting.
		return false
	}
	return true
}
