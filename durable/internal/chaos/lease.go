//go:build unix

package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/tickwheel/tickwheel/durable"
)

// muteable is an engine whose workers do not renew their lease while there is a file:
// as if each beat were lost, and nothing else.
type muteable struct {
	durable.Engine
	file string
}

var errMute = errors.New("the beat is lost")

func (m *muteable) Work(ctx context.Context, c durable.WorkConfig) (durable.Worker, error) {
	w, err := m.Engine.Work(ctx, c)
	return &muteableWorker{w, m.file}, err
}

type muteableWorker struct {
	durable.Worker
	file string
}

func (m *muteableWorker) Beat(ctx context.Context) error {
	if _, err := os.Stat(m.file); err == nil {
		return errMute
	}
	return m.Worker.Beat(ctx)
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
