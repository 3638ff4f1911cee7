package main

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"

	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

const (
	crowd    = 6000 // functions that come due behind one that blocks
	tooLates = 1000 // of them at most may have left the wheel without having begun: some slices
)

// blocked lets a crowd of functions come due while one holds up the driver, and then
// cancels some and stops the wheel, in the middle of the crowd. Each function runs, is
// canceled or is handed back, once. But for some slices, what has not begun can be
// canceled, and does not run after Stop.
func (s *soak) blocked() {
	c := &crowded{soak: s, release: make(chan struct{})}
	c.w = timingwheel.New(
		timingwheel.WithExecutor(c.executor()),
		timingwheel.WithShards(pick(1, 4)),
	)
	timeouts := make([]timingwheel.Timeout, crowd)
	for i := range timeouts {
		var err error
		d := time.Duration(rand.Int64N(int64(5 * time.Millisecond)))
		if timeouts[i], err = c.w.Schedule(d, func() { c.run(i) }); err != nil {
			s.violations.add("behind a block: refused: %v", err)
		}
	}
	s.total.tasks.Add(crowd)
	time.Sleep(pick(0, 10*time.Millisecond))
	close(c.release)
	time.Sleep(time.Duration(rand.Int64N(int64(10 * time.Millisecond))))
	c.cancel(timeouts)
	time.Sleep(time.Duration(rand.Int64N(int64(10 * time.Millisecond))))
	c.stop()
}

// crowded is a wheel whose driver is held up.
type crowded struct {
	soak     *soak
	w        *timingwheel.TimingWheel
	release  chan struct{} // closed when the block ends
	pool     *pool.Pool
	ends     [crowd]atomic.Int32 // how often each function has ended
	ran      atomic.Int64
	canceled int64
}

// executor returns one that runs functions on the driver.
func (c *crowded) executor() timingwheel.Executor {
	switch rand.IntN(3) {
	case 0:
		return timingwheel.ExecutorFunc(func(task func()) { task() })
	case 1:
		return timingwheel.Inline()
	}
	c.pool = pool.New(1, 0, pool.CallerRuns)
	return c.pool
}

// run takes some time, so that there is a middle.
func (c *crowded) run(i int) {
	<-c.release
	c.end(i)
	c.ran.Add(1)
	for begin := time.Now(); time.Since(begin) < 10*time.Microsecond; {
	}
}

func (c *crowded) end(i int) {
	if c.ends[i].Add(1) > 1 {
		c.soak.violations.add("behind a block: a function ended twice")
	}
}

// cancel cancels a part of the crowd, the last ones first.
func (c *crowded) cancel(timeouts []timingwheel.Timeout) {
	tooLate := 0
	for i := crowd - 1; i >= crowd/2; i-- {
		begun := c.ends[i].Load() > 0
		switch canceled := timeouts[i].Cancel(); {
		case canceled:
			c.end(i)
			c.canceled++
		case !begun:
			tooLate++
		}
	}
	if tooLate > tooLates {
		c.soak.violations.add("behind a block: %d of %d cancels came too late for what had not begun", tooLate, crowd/2)
	}
	c.soak.total.canceled.Add(c.canceled)
}

// stop stops the wheel, and closes the accounts.
func (c *crowded) stop() {
	v := &c.soak.violations
	pending := int64(len(c.w.Stop()))
	ranBefore := c.ran.Load()
	if !wait(func() bool { return c.ran.Load()+c.canceled+pending >= crowd && c.w.Stats().Running == 0 }) {
		v.add("behind a block: %d ran, %d canceled, %d handed back, of %d\n%s", c.ran.Load(), c.canceled, pending, crowd, stacks())
	}
	ran := c.ran.Load()
	if ran+c.canceled+pending != crowd {
		v.add("behind a block: %d ran, %d canceled, %d handed back, of %d", ran, c.canceled, pending, crowd)
	}
	if after := ran - ranBefore; after > tooLates {
		v.add("behind a block: %d functions ran after Stop", after)
	}
	if c.pool != nil {
		c.pool.Close()
	}
	c.soak.total.ran.Add(ran)
	c.soak.total.handedBack.Add(pending)
}
