// Package held is for engines in whose store the transactions of callers may hold keys and jobs, and
// for all engines while a job that is due is about to be claimed.
//
// A Queue stores the jobs of many callers in one call of its engine, and a worker the ends of many
// attempts. None of them may wait for the transaction or the key of another. So both pass a context of NoWait,
// call again what the engine returns with Err, and keep it apart from all others until then.
package held

import (
	"context"
	"errors"
)

// Err says that a transaction which is open holds a key, or has locked a job, or that the job which
// has the key is about to be claimed. Nothing was written.
var Err = errors.New("durable: held by an open transaction")

type noWait struct{}

// NoWait returns a context with which Insert and Finish return Err at once.
func NoWait(ctx context.Context) context.Context { return context.WithValue(ctx, noWait{}, true) }

// MayWait reports whether a context is not of NoWait.
func MayWait(ctx context.Context) bool { return ctx.Value(noWait{}) == nil }
