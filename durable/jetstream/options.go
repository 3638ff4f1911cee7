package jetstream

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/tickwheel/tickwheel/durable/jetstream/internal/options"
)

// Option sets up an engine that [Connect] returns.
type Option func(*options.Options)

// config is the options of one engine, with the defaults.
type config struct {
	options.Options
}

// api returns the prefix of the subjects of the server's API.
func (c *config) api() string {
	if c.Domain == "" {
		return "$JS.API."
	}
	return "$JS." + c.Domain + ".API."
}

// alive returns a context that ends when the server has failed for good.
func (c *config) alive() context.Context {
	if c.Own == nil || c.Own.Alive == nil {
		return context.Background()
	}
	return c.Own.Alive
}

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
