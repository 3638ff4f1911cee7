//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"github.com/tickwheel/tickwheel/durable/testservers/pgserver"
)

// disk is a file system of its own, which can lose all that was not synced, as in a power cut.
type disk struct{ image, dir string }

// newDisk makes a disk and mounts it at a directory, which is made. Where that is not possible the fault is
// left out. Dirty pages stay in memory for a minute, so that a server that does not sync loses something.
func (w *world) newDisk(dir string) *disk {
	d := &disk{filepath.Join(w.dir, "disk-"+strconv.Itoa(len(w.atEnd))), dir}
	must(os.MkdirAll(dir, 0o755))
	must(os.WriteFile(d.image, nil, 0o600))
	must(os.Truncate(d.image, 2<<30))
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", d.image).CombinedOutput(); err != nil {
		must(fmt.Errorf("%w: no ext4 file system can be made here: %w: %s", errors.ErrUnsupported, err, out))
	}
	d.mount()
	w.atEnd = append(w.atEnd, func() { _ = exec.Command("umount", "-l", dir).Run() })
	return d
}

func (d *disk) mount() {
	if out, err := exec.Command("mount", "-o", "loop,commit=60", d.image, d.dir).CombinedOutput(); err != nil {
		must(fmt.Errorf("%w: a file system cannot be mounted here: %w: %s", errors.ErrUnsupported, err, out))
	}
}

// cut makes the disk forget all that was not synced. Nothing can be written any more. The kernel calls it EXT4_IOC_SHUTDOWN, with
// the flag that the log is not flushed.
func (d *disk) cut() {
	f := get(os.Open(d.dir))
	defer f.Close()
	flag := uint32(2)
	if _, _, err := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), 0x8004587d, uintptr(unsafe.Pointer(&flag))); err != 0 {
		must(fmt.Errorf("%w: the file system cannot be shut down: %w", errors.ErrUnsupported, err))
	}
}

// again mounts the disk once nobody uses it, as after a restart of the machine.
func (d *disk) again() {
	var out []byte
	err := errors.ErrUnsupported
	for end := time.Now().Add(patience); err != nil && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		out, err = exec.Command("umount", d.dir).CombinedOutput()
	}
	if err != nil {
		must(fmt.Errorf("umount: %w: %s", err, out))
	}
	d.mount()
}

// cutPower returns a fault that cuts the power of a process with a store, or of all servers of a cluster at
// once, or of one beside another that is frozen. Where sync is not 0, the server syncs so rarely: this
// has to lose jobs, or the fault proves nothing.
func cutPower(all bool, sync time.Duration) func(*world) {
	return func(w *world) {
		w.r.twice, w.r.control = -1, sync != 0
		w.spec.Sync = sync
		n, name := max(w.spec.Nodes, 1), func(i int) string { return "server" + strconv.Itoa(i) }
		var disks []*disk
		for i := range n {
			dir := w.spec.Store + strconv.Itoa(i)
			if w.embedded {
				dir, name = w.spec.Store, func(int) string { return "embedded" }
			}
			disks = append(disks, w.newDisk(dir))
		}
		w.startAll()
		w.until(1, 5*time.Second, 5*time.Second, func(at int) {
			cut := []int{at % n}
			if all {
				cut = []int{0, 1, 2}[:n]
			}
			paused := -1
			if n == 3 && !all {
				paused = (at + 1) % n
				must(w.procs[name(paused)].cmd.Process.Signal(syscall.SIGSTOP))
				time.Sleep(3 * time.Second)
			}
			for _, i := range cut {
				disks[i].cut()
			}
			for _, i := range cut {
				w.kill(name(i))
			}
			for _, i := range cut {
				disks[i].again()
				if w.embedded {
					w.startClients()
				} else {
					w.startServer(i)
				}
			}
			if paused >= 0 {
				pause(0, 3*time.Second)
				must(w.procs[name(paused)].cmd.Process.Signal(syscall.SIGCONT))
			}
			w.awaitGoingOn(func() {})
			if n == 3 && time.Now().Before(w.end) {
				time.Sleep(10 * time.Second) // two of three have to be there
			}
		})
	}
}

// cutPostgres returns a fault that cuts the power of PostgreSQL, with settings more.
func cutPostgres(settings ...string) func(*world) {
	return func(w *world) {
		w.r.twice, w.r.control = -1, len(settings) > 0
		dir := get(os.MkdirTemp("", "power"))
		w.atEnd = append(w.atEnd, func() { _ = os.Remove(dir) })
		must(os.Chmod(dir, 0o755)) // the server is another user's
		d := w.newDisk(dir)
		temp := os.TempDir()
		must(os.Setenv("TMPDIR", dir))
		pg, err := pgserver.New(append(settings, "max_connections=200")...)
		must(errors.Join(err, os.Setenv("TMPDIR", temp)))
		w.pg, w.atEnd = pg, append(w.atEnd, func() { _ = pg.Stop() })
		w.startAll()
		syscall.Sync() // initdb has not
		w.until(1, 5*time.Second, 5*time.Second, func(int) {
			d.cut()
			must(w.pg.Kill())
			d.again()
			w.r.Happened++
			must(w.pg.Start())
			w.awaitGoingOn(func() {})
		})
	}
}
