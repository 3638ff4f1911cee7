// Package setclock has processes whose clocks are set while they run, for tests: as a
// wrong clock is corrected, or an hour passes in which a machine stands still. Only such
// a process sees it; the system's clocks stay.
//
// A Clock is a file. The span in it is added to all that the processes which follow it read
// of the clocks, from one moment to the next.
package setclock

import (
	"encoding/binary"
	"fmt"
	"os"
	"time"
)

// Clock sets the clocks of the processes that follow its file. Its methods are for one
// goroutine at a time.
type Clock struct {
	f            *os.File
	wall, passed time.Duration
}

// New makes the file of a Clock, which shows the system's time.
func New(path string) (*Clock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	c := &Clock{f: f}
	err = f.Truncate(cellsSize)
	return c, err
}

// Set sets the wall clock to so much ahead of the system's, in whole seconds, and of what
// has passed besides. The monotonic clock goes on: a timer takes as long as it took.
func (c *Clock) Set(shift time.Duration) error {
	c.wall = shift
	return c.write()
}

// Pass has d pass in a moment, in whole seconds, by the wall clock and by the monotonic
// one. It panics if d is negative: a monotonic clock does not go back.
func (c *Clock) Pass(d time.Duration) error {
	if d < 0 {
		panic(fmt.Sprintf("setclock: Pass(%v): negative", d))
	}
	c.passed += d
	return c.write()
}

func (c *Clock) write() error {
	table := make([]byte, 0, 8*cells)
	for id := range cells {
		shift := c.passed
		if isWall(id) {
			shift += c.wall
		}
		table = binary.NativeEndian.AppendUint64(table, uint64(shift/time.Second))
	}
	_, err := c.f.WriteAt(table, 0) // aligned: nobody reads half of a number
	return err
}

// Close closes the file. The processes that follow it go on as it was set last.
func (c *Clock) Close() error { return c.f.Close() }

// The file has the shift of each clock in seconds, by the system's number of the clock.
const (
	cells     = 8
	cellsSize = 4096 // a page, since it is mapped
)

// isWall tells whether a clock is CLOCK_REALTIME or the coarse one of the same time. All
// others only go forward.
func isWall(id int) bool { return id == 0 || id == 5 }
