package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// A write of the server that fails for want of room is the last that its store takes: all
// later ones fail, too. If it was that of a purge, the store waits for its own lock, and
// neither answers nor ends. Such a server ends with its process only. So the engine asks for
// no write while less than reserve is free. Others may take the last of it between that
// look and the write, and the server writes by itself, too. Then the store fails all the
// same, and the engine ends with ErrStorage.

const (
	// reserve is how much of the disk stays free. The server writes an atomic batch, of up to
	// 4 MiB, twice, and a file of messages, of up to 8 MiB, anew.
	reserve = 8 << 20

	// A disk with plenty of room is asked every 10 ms: that many bytes take longer to write. To ask it
	// each time took 1 % of a job's processor time.
	plenty   = 256 << 20
	askEvery = 10 * time.Millisecond

	lookEvery  = time.Second
	mostSilent = 30 // looks that the server does not answer, after the disk was full
)

// disk is the disk that a store is on, and what becomes of the store when it is full.
type disk struct {
	dir   string
	bytes func(dir string) (int64, error) // how many are free
	log   *slog.Logger
	alive context.Context // until Close, or until the store has failed: then its cause says so
	end   context.CancelCauseFunc

	last atomic.Pointer[reading] // nil at first

	mu      sync.Mutex
	ask     func(context.Context) error // whether the server answers; nil: it is not open yet
	failure string                      // what the server said of a write that failed; "": nothing
	watched bool                        // by a goroutine, since the disk is full, or there is a failure
}

// reading is how much of the disk was free at a time.
type reading struct {
	bytes int64
	at    time.Time
}

func newDisk(dir string, bytes func(dir string) (int64, error), log *slog.Logger) *disk {
	d := &disk{dir: dir, bytes: bytes, log: log}
	d.alive, d.end = context.WithCancelCause(context.Background())
	return d
}

// free returns how many bytes the store may take, and ErrFull if there are none.
func (d *disk) free() (int64, error) {
	if last := d.last.Load(); last != nil && last.bytes > plenty && time.Since(last.at) < askEvery {
		return last.bytes - reserve, nil
	}
	n, err := d.bytes(d.dir)
	d.last.Store(&reading{n, time.Now()}) // with an error n is 0
	if err != nil || n > reserve {
		return n - reserve, err
	}
	d.suspect("")
	return 0, fmt.Errorf("%w: the disk of %s has %d bytes free and needs %d", driver.ErrFull, d.dir, n, reserve)
}

// heard looks whether what the server says means that a store has failed. The store of an
// atomic batch, which has a name of its own, may fail alone.
func (d *disk) heard(text string) {
	ours := strings.HasPrefix(text, "Filestore [TW_") || strings.HasPrefix(text, "JetStream stream ")
	if ours && strings.Contains(strings.ToLower(text), "critical write error") {
		d.suspect(text)
	}
}

// opened says how to ask whether the server answers.
func (d *disk) opened(ask func(context.Context) error) {
	d.mu.Lock()
	d.ask = ask
	failure := d.failure
	d.mu.Unlock()
	if failure != "" {
		d.suspect(failure)
	}
}

// suspect has the server watched, if it is not.
func (d *disk) suspect(failure string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failure == "" {
		d.failure = failure
	}
	if d.ask != nil && !d.watched && d.alive.Err() == nil {
		d.watched = true
		go d.watch()
	}
}

// watch looks at the disk and the server until the disk has room and the server answers, or
// has failed. While there is no room the engine does not end: what starts the process anew
// would find the disk full.
func (d *disk) watch() {
	began, full := time.Now(), false
	t := time.NewTicker(lookEvery) // it counts no time in which the process stood still
	defer t.Stop()
	for silent := 0; ; {
		n, err := d.bytes(d.dir)
		room := err != nil || n > reserve
		if !room && !full {
			full = true
			d.log.Error("durable: the disk of the embedded store is full: jobs are not accepted, begun or ended until there is room", "dir", d.dir, "free", n, "needed", reserve)
		}
		ctx, cancel := context.WithTimeout(d.alive, lookEvery)
		silent++
		if d.ask(ctx) == nil {
			silent = 0
		}
		cancel()
		if room && d.settled(silent) {
			if full {
				d.log.Warn("durable: the disk of the embedded store has room again", "dir", d.dir, "full", time.Since(began).Round(time.Second))
			}
			return
		}
		select {
		case <-d.alive.Done():
			return
		case <-t.C:
		}
	}
}

// settled reports whether the server need not be watched any more: it answers, or has failed.
func (d *disk) settled(silent int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	why := d.failure
	if why == "" && silent >= mostSilent {
		why = fmt.Sprintf("no answer to %d questions after its disk was full", silent)
	}
	if why != "" {
		err := fmt.Errorf("%w: the store in %s has failed: restart the process: %s (%w)", driver.ErrStorage, d.dir, why, driver.ErrClosed)
		d.log.Error("durable: the embedded store has failed, and the engine ends", "error", err)
		d.end(err)
		return true
	}
	d.watched = silent > 0
	return !d.watched
}
