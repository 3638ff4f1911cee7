package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable/cron"
	"github.com/tickwheel/tickwheel/timingwheel"
)

// crontab is a list of expressions, each of which becomes a job on the wheel.
type crontab struct {
	wheel   *timingwheel.TimingWheel
	entries []*entry
	onRun   func(e *entry, at time.Time) // called by each run; the runs of one entry never overlap

	mu  sync.Mutex // keeps lines of output whole
	out io.Writer
}

type entry struct {
	expression string
	schedule   *cron.Spec
	job        *timingwheel.Job
}

func newCrontab(out io.Writer) *crontab {
	c := &crontab{wheel: timingwheel.New(), out: out}
	c.onRun = c.report
	return c
}

// add appends an expression.
func (c *crontab) add(expression string) error {
	schedule, err := cron.Parse(expression)
	if err != nil {
		return err
	}
	c.entries = append(c.entries, &entry{expression: expression, schedule: schedule})
	return nil
}

// preview prints the next n times of each entry.
func (c *crontab) preview(now time.Time, n int) {
	for _, e := range c.entries {
		fmt.Fprintln(c.out, e.expression)
		at := now
		for range n {
			if at = e.schedule.Next(at); at.IsZero() {
				fmt.Fprintln(c.out, "    never")
				break
			}
			fmt.Fprintln(c.out, "   ", e.format(at))
		}
	}
	fmt.Fprintln(c.out)
}

// start hands the schedules to the wheel. A cron.Spec has the one method that a
// timingwheel.Scheduler needs.
func (c *crontab) start() error {
	for _, e := range c.entries {
		job, err := c.wheel.ScheduleFunc(e.schedule, func() { c.onRun(e, time.Now()) })
		if err != nil {
			c.stop()
			return fmt.Errorf("%s: %w", e.expression, err)
		}
		e.job = job
	}
	return nil
}

// stop ends the jobs, waits for the runs that have begun, and ends the wheel.
func (c *crontab) stop() {
	for _, e := range c.entries {
		if e.job != nil {
			e.job.StopWait(context.Background())
		}
	}
	c.wheel.Stop()
}

// report prints one run. Cron's times are whole seconds and no run is early. So the part
// beyond the second is how late it was.
func (c *crontab) report(e *entry, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	late := at.Sub(at.Truncate(time.Second))
	fmt.Fprintf(c.out, "%s  %s  (%v late)\n", e.format(at), e.expression, late.Round(time.Microsecond))
}

func (c *crontab) summary() {
	fmt.Fprintln(c.out)
	for _, e := range c.entries {
		fmt.Fprintf(c.out, "%6d runs  %s\n", e.job.Runs(), e.expression)
	}
}

func (e *entry) format(at time.Time) string {
	return at.In(e.schedule.Zone()).Format("Mon 2006-01-02 15:04:05 MST")
}
