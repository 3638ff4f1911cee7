//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/trials/setclock"
)

// engine is what a Queue is opened on. All that the trials know of the contract of engines
// is in this file.
type engine = driver.Engine

// lookup asks for the job of a key.
func lookup(ctx context.Context, e engine, key string) { _, _ = e.Lookup(ctx, key) }

// watched is an engine whose workers write down when they renewed their lease and when the
// tokens come that they were given. They do not renew their lease while there is a file: as
// if each heartbeat were lost, and nothing else.
type watched struct {
	engine
	mute string
	l    *ledger // nil: nothing is written down
}

// mutePath returns the file of the worker of a name.
func mutePath(dir, name string) string { return filepath.Join(dir, "mute-"+name) }

var errMute = errors.New("the heartbeat is lost")

func (e *watched) Work(ctx context.Context, c driver.WorkConfig) (driver.Worker, error) {
	began := setclock.Real()
	w, err := e.engine.Work(ctx, c)
	e.renewed(began, err)
	return &watchedWorker{w, e}, err
}

func (e *watched) renewed(asked time.Time, err error) {
	if err == nil {
		e.l.write(renewed, strconv.FormatInt(asked.UnixNano(), 10))
	}
}

type watchedWorker struct {
	driver.Worker
	e *watched
}

func (w *watchedWorker) Heartbeat(ctx context.Context) error {
	if _, err := os.Stat(w.e.mute); err == nil {
		return errMute
	}
	began := setclock.Real()
	err := w.Worker.Heartbeat(ctx)
	w.e.renewed(began, err)
	return err
}

// Claim writes down the time of each token, by the engine's clock. A token that was there
// already is not used before the claim is answered.
func (w *watchedWorker) Claim(ctx context.Context, deliveries []*driver.Delivery) []driver.ClaimResult {
	results := w.Worker.Claim(ctx, deliveries)
	answered := time.Now()
	for i, v := range results {
		if v.Status != driver.Granted || deliveries[i].Record.Kind != paced {
			continue
		}
		at := v.At
		if at.IsZero() {
			at = answered
		}
		w.e.l.write(token, fmt.Sprint(at.UnixNano()))
	}
	return results
}
