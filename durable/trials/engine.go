//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/trials/setclock"
)

// engine is what a Queue is opened on. All that the trials know of the contract of engines
// is in this file.
type engine = driver.Engine

// watched is an engine whose workers write down when they renewed their lease. They do not renew it while there is
// a file: as if each heartbeat were lost, and nothing else.
type watched struct {
	engine
	mute string
	l    *ledger // nil: nothing is written down
}

// mutePath returns the file of the worker of a name.
func mutePath(dir, name string) string { return filepath.Join(dir, "mute-"+name) }

// renew calls f, which renews the lease, and writes down when.
func (e *watched) renew(f func() error) error {
	asked := setclock.Real()
	err := f()
	if err == nil {
		e.l.write(renewed, fmt.Sprint(asked.UnixNano()))
	}
	return err
}

func (e *watched) Work(ctx context.Context, c driver.WorkConfig) (driver.Worker, error) {
	w := &watchedWorker{e: e}
	err := e.renew(func() (err error) { w.Worker, err = e.engine.Work(ctx, c); return err })
	return w, err
}

type watchedWorker struct {
	driver.Worker
	e *watched
}

func (w *watchedWorker) Heartbeat(ctx context.Context) error {
	if _, err := os.Stat(w.e.mute); err == nil {
		return errors.New("the heartbeat is lost")
	}
	return w.e.renew(func() error { return w.Worker.Heartbeat(ctx) })
}
