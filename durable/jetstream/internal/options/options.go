// Package options holds the options of an engine on JetStream. Package jetstream exports those
// that are for users. Package embedded sets the rest, for its server.
package options

import (
	"context"
	"time"
)

// Options are what Connect, Backup and Restore of package jetstream are called with.
type Options struct {
	Queue      string
	Domain     string
	Replicas   int
	Partitions int
	MaxBytes   int64
	Buckets    Buckets
	Existing   bool

	Given []string // the names of options that have to agree with the stored queue

	Own *OwnServer // nil: the server is another process

	// For tests: the age at which a handle is stale, the version of the stored data that the
	// engine knows, and the time that the clock of a server shows, by its name.
	StaleAge time.Duration
	Version  int
	Shift    func(server string, t time.Time) time.Time
}

// Buckets are the buckets of time of a queue: see Buckets of package jetstream.
type Buckets struct{ Near, Far, Lead, Settle time.Duration }

// OwnServer is a server in the engine's own process. Its clock is that of this machine, so the
// engine does not query it. No other process uses the queue, so the leases of earlier workers
// have ended when an engine connects, and the limit of MaxBytes may change.
type OwnServer struct {
	// Free returns the number of bytes that are free on the server's disk. While it returns
	// an error that wraps driver.ErrFull, the engine sends the server no request that writes:
	// a server whose disk is full does not answer until it is restarted. The engine ignores
	// any other error. May be nil.
	Free func() (int64, error)

	// MaxStore is how many bytes all partitions may take together, 0 for no limit. MaxBytes, if
	// it is set, is the limit of each instead.
	MaxStore int64

	// Alive ends the engine for good when it ends: all calls then return its cause. If that
	// wraps driver.ErrClosed, it also ends Queue.Run. May be nil.
	Alive context.Context
}
