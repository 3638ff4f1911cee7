//go:build unix

package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/trials/setclock"
)

// muteable is an engine whose workers do not renew their lease while there is a file:
// as if each beat were lost, and nothing else.
type muteable struct {
	driver.Engine
	file string
	l    *ledger // of the leases; may be nil
}

var errMute = errors.New("the beat is lost")

func (m *muteable) Work(ctx context.Context, c driver.WorkConfig) (driver.Worker, error) {
	began := setclock.Real()
	w, err := m.Engine.Work(ctx, c)
	if err == nil {
		m.l.renewed(began)
	}
	return &muteableWorker{w, m}, err
}

type muteableWorker struct {
	driver.Worker
	m *muteable
}

func (m *muteableWorker) Heartbeat(ctx context.Context) error {
	if _, err := os.Stat(m.m.file); err == nil {
		return errMute
	}
	began := setclock.Real()
	err := m.Worker.Heartbeat(ctx)
	if err == nil {
		m.m.l.renewed(began)
	}
	return err
}

// leases returns where the leases of a process are written down that has limits. What is run
// at the end is watched by how its ledger grows.
func leases(l *ledger, role string) *ledger {
	if role == "drain" || number(envLanes, 0) == 0 {
		return nil
	}
	return l
}

func (l *ledger) renewed(asked time.Time) {
	if l != nil {
		l.write(renewed, strconv.FormatInt(asked.UnixNano(), 10))
	}
}

func mutePath(dir, name string) string { return filepath.Join(dir, "mute-"+name) }

// loseLease has slow workers lose their lease while jobs that they have claimed wait for
// a place, and all else of them goes on. A quick worker takes over and fails the
// attempts, and the jobs are canceled: none of them may begin in the slow one any more.
func (w *world) loseLease(end time.Time) error {
	w.r.CheckTwice = false // what runs in a slow worker begins elsewhere, too: that is the promise
	w.env = []string{envFail + "=80", envCancel + "=100"}
	if err := w.startAll(envSlow+"=10s", envPlaces+"=16"); err != nil {
		return err
	}
	if err := w.startClient("worker2", "worker"); err != nil {
		return err
	}
	slow := []string{mutePath(w.dir, "worker0"), mutePath(w.dir, "worker1")}
	for n := 0; n == 0 || time.Now().Before(end); n++ {
		time.Sleep(w.lease/2 + rand.N(w.lease/2))
		for _, file := range slow {
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				return err
			}
		}
		time.Sleep(2*w.lease + rand.N(w.lease))
		for _, file := range slow {
			if err := os.Remove(file); err != nil {
				return err
			}
			w.r.Provoked++
		}
	}
	return nil
}
