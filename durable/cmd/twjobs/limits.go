package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/tickwheel/tickwheel/durable"
)

// limits lists limits and pauses, or sets or removes limits.
func (t *tool) limits(args []string) error {
	switch {
	case len(args) == 0:
		return t.listLimits()
	case args[0] == "set":
		return t.setLimit(args[1:])
	case args[0] == "remove" && len(args) > 1:
		return t.each(args[1:], "removed", "", func(name durable.Ref) (bool, error) {
			err := t.SetLimit(t.ctx, string(name), durable.Limit{})
			return err == nil, err
		})
	}
	return errUsage
}

func (t *tool) setLimit(args []string) error {
	var l durable.Limit
	f := newFlags("limits set", t.err)
	f.StringVar(&l.Kind, "kind", "", "")
	f.BoolVar(&l.PerLane, "per-lane", false, "")
	f.IntVar(&l.Running, "running", 0, "")
	f.Float64Var(&l.Rate, "rate", 0, "")
	f.IntVar(&l.Burst, "burst", 0, "")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() != 1 || l == (durable.Limit{}) {
		return errUsage
	}
	if err := t.SetLimit(t.ctx, f.Arg(0), l); err != nil {
		return err
	}
	fmt.Fprintf(t.out, "%s: set\n", printable(f.Arg(0)))
	return nil
}

func (t *tool) listLimits() error {
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tOF\tRUNNING\tRATE\tLANES\tNEXT TOKEN")
	for i, err := range t.Limits(t.ctx) {
		if err != nil {
			return err
		}
		of, running, rate, lanes, next := "all", fmt.Sprint(i.Taken), "-", "-", "-"
		if i.Kind != "" {
			of = printable(i.Kind)
		}
		switch {
		case i.Pauses():
			running += " of 0: paused"
		case i.Running > 0:
			running += fmt.Sprintf(" of %d", i.Running)
		}
		if i.Rate > 0 {
			rate = fmt.Sprintf("%v/s, burst %d", i.Rate, i.Burst)
		}
		if i.PerLane {
			of += ", each lane"
			lanes = fmt.Sprint(i.Lanes)
		}
		if !i.Next.IsZero() {
			next = when(i.Next)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", printable(i.Name), of, running, rate, lanes, next)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	paused, err := t.Paused(t.ctx)
	for _, p := range paused {
		fmt.Fprintf(t.out, "paused: %s\n", printable(p.String()))
	}
	return err
}

// pause and resume take what they are for as flags; none is all.
func (t *tool) pause(args []string) error {
	return t.pauseOrResume(args, "paused", func(p durable.Pausable) error { return t.Pause(t.ctx, p) })
}

func (t *tool) resume(args []string) error {
	return t.pauseOrResume(args, "goes on", func(p durable.Pausable) error { return t.Resume(t.ctx, p) })
}

func (t *tool) pauseOrResume(args []string, done string, do func(durable.Pausable) error) error {
	var p durable.Pausable
	f := newFlags("pause", t.err)
	f.StringVar(&p.Kind, "kind", "", "")
	f.StringVar(&p.Lane, "lane", "", "")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return errUsage
	}
	if err := do(p); err != nil {
		return err
	}
	fmt.Fprintf(t.out, "%s: %s\n", printable(p.String()), done)
	return nil
}

// stop ends jobs that run.
func (t *tool) stop(args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	return t.each(args, "asked to end", "it does not run", func(r durable.Ref) (bool, error) { return t.CancelRunning(t.ctx, r) })
}
