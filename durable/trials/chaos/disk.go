//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/tickwheel/tickwheel/durable"
)

// fillDisk fills the disk of the process that has all, at once or slowly, keeps it full for a
// while and frees it, again and again. A process that ends by itself is started again, as its
// supervisor would, when there is room.
func (w *world) fillDisk(end time.Time) error {
	w.r.CheckTwice = false // no attempt can end, and the process may be started again
	disk := filepath.Join(w.dir, "disk")
	if err := os.Mkdir(disk, 0o700); err != nil {
		return err
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", disk).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: a file system cannot be mounted here: %w: %s", errors.ErrUnsupported, err, out)
	}
	w.unmount = disk
	w.env = []string{envStore + "=" + filepath.Join(disk, "store"), envAsk + "=yes"}
	if err := w.start("embedded", "embedded", w.env...); err != nil {
		return err
	}
	w.awaitWork(0)
	for n := 0; n < 2 || time.Now().Before(end); n++ {
		time.Sleep(time.Second + rand.N(4*time.Second))
		if err := fill(filepath.Join(disk, "others"), n%2 == 1, time.Second+rand.N(2*w.lease)); err != nil {
			return err
		}
		w.r.Provoked++
		if err := w.awaitGoingOn(func() error { return w.restart("embedded") }); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) endMount() {
	if w.unmount != "" {
		w.killAll()
		_ = exec.Command("umount", "-l", w.unmount).Run()
	}
}

// fill has a file take all there is of its disk, at once or within some seconds, and what
// becomes free later, until it was full for that long. Then the file is removed.
func fill(path string, slowly bool, full time.Duration) error {
	defer os.Remove(path)
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	piece := make([]byte, 256<<10)
	for began := time.Now(); time.Since(began) < full; {
		_, err := f.Write(piece)
		switch {
		case err == nil && slowly:
			time.Sleep(20 * time.Millisecond)
		case err == nil:
		case len(piece) > 512:
			piece = piece[:512]
		default:
			time.Sleep(10 * time.Millisecond)
		}
		if err == nil && len(piece) > 512 {
			began = time.Now() // it is not full yet
		}
	}
	return nil
}

// restart starts a process again if it has ended by itself, by saying that it cannot go on.
func (w *world) restart(name string) error {
	select {
	case <-w.procs[name].done:
		if code := w.procs[name].cmd.ProcessState.ExitCode(); code != statusFailed {
			return fmt.Errorf("%s has ended with %d", name, code)
		}
		w.r.Restarts++
		time.Sleep(time.Second)
		return w.start(name, name, w.env...)
	default:
		return nil
	}
}

// awaitGoingOn waits until jobs are accepted and end, and calls f meanwhile.
func (w *world) awaitGoingOn(f func() error) error {
	read := map[string]int64{}
	w.newly(read, 0)
	for _, what := range []byte{accepted, finished} {
		for began := time.Now(); !w.newly(read, what); time.Sleep(20 * time.Millisecond) {
			if err := f(); err != nil {
				return err
			}
			if time.Since(began) > patience {
				return fmt.Errorf("stuck: no line %c for %v", what, patience)
			}
		}
	}
	return nil
}

// watchHealth asks for the Queue's health all the time. Its answer may be anything, but it
// has to come.
func watchHealth(ctx context.Context, q *durable.Queue, l *ledger) {
	for ctx.Err() == nil {
		answered := time.AfterFunc(patience/2, func() { l.write(silent, "none") })
		try, cancel := context.WithTimeout(ctx, time.Second)
		_ = q.Health(try)
		cancel()
		answered.Stop()
		time.Sleep(100 * time.Millisecond)
	}
}
