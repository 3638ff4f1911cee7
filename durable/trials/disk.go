//go:build unix

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// fillDisk fills the disk of the process that has all, at once or slowly, keeps it full for a
// while and frees it, again and again. A process that ends by itself is started again, as its
// supervisor would, when there is room.
func (w *world) fillDisk() {
	w.r.CheckTwice = false // no attempt can end, and the process may be started again
	disk := filepath.Join(w.dir, "disk")
	must(os.Mkdir(disk, 0o700))
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", disk).CombinedOutput(); err != nil {
		must(fmt.Errorf("%w: a file system cannot be mounted here: %w: %s", errors.ErrUnsupported, err, out))
	}
	w.atEnd = append(w.atEnd, func() { _ = exec.Command("umount", "-l", disk).Run() })
	w.spec.Store, w.spec.Ask = filepath.Join(disk, "store"), true
	w.start("embedded", "embedded")
	w.awaitWork(0)
	w.until(2, func(n int) {
		pause(time.Second, 4*time.Second)
		fill(filepath.Join(disk, "others"), n%2 == 1, time.Second+rand.N(2*lease))
		w.r.Provoked++
		w.awaitGoingOn(func() { w.restart("embedded") })
	})
}

// fill fills the disk with a file, at once or within some seconds, and keeps it full for a while. Then
// it removes the file.
func fill(path string, slowly bool, full time.Duration) {
	defer os.Remove(path)
	f := get(os.Create(path))
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
}

// restart starts a process again if it has ended by itself, by saying that it cannot go on.
func (w *world) restart(name string) {
	p := w.procs[name]
	if !p.hasEnded() {
		return
	}
	if code := p.cmd.ProcessState.ExitCode(); code != statusFailed {
		must(fmt.Errorf("%s has ended with %d", name, code))
	}
	w.r.Restarts++
	time.Sleep(time.Second)
	w.start(name, name)
}
