// Package setclock has processes whose wall clock is set while they run, for tests: as a
// wrong clock is corrected, or that of a machine that was restored. Only such a process
// sees it; the system's clock stays.
//
// A Clock is a file. The processes that follow it have its shift added to all that they
// read of the wall clock, at once when it is set, and nothing added to the monotonic
// clock: a timer takes as long as it took.
package setclock

import (
	"encoding/binary"
	"os"
	"time"
)

// Clock sets the wall clock of the processes that follow its file. Its methods are for one
// goroutine at a time.
type Clock struct{ f *os.File }

// New makes the file of a Clock that is right.
func New(path string) (*Clock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	c := &Clock{f}
	err = f.Truncate(cellSize)
	return c, err
}

// Set sets the clock to so much ahead of that of the system, in whole seconds.
func (c *Clock) Set(shift time.Duration) error {
	cell := binary.NativeEndian.AppendUint64(nil, uint64(shift/time.Second))
	_, err := c.f.WriteAt(cell, 0) // eight aligned bytes: nobody reads half of them
	return err
}

// Close closes the file. Who follows it goes on with the last shift.
func (c *Clock) Close() error { return c.f.Close() }

// cellSize is how much of the file is mapped. The first eight bytes are the shift.
const cellSize = 4096
