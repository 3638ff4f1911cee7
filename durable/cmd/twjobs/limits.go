package main

import (
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/admin"
)

// limits lists limits and what is paused, or sets or deletes limits.
func (t *tool) limits(args []string) error {
	switch {
	case len(args) == 0:
		return t.listLimits()
	case args[0] == "set":
		return t.setLimit(args[1:])
	case args[0] != "delete":
		return wrong("limits: unknown command %q", args[0])
	case len(args) == 1:
		return wrong("limits delete needs one or more names")
	}
	return t.change("limit-delete", "deleted", admin.Command{Names: args[1:]})
}

func (t *tool) setLimit(args []string) error {
	var l durable.Limit
	f := newFlags("limits set", t.err)
	f.StringVar(&l.Kind, "kind", "", "that it covers; without it all")
	f.BoolVar(&l.PerLane, "per-lane", false, "each lane is counted for itself")
	f.IntVar(&l.Running, "running", 0, "so many at once")
	f.Float64Var(&l.Rate, "rate", 0, "so many begin in a second")
	f.IntVar(&l.Burst, "burst", 0, "so many at once, if there were fewer before")
	if err := parse(f, args); err != nil {
		return err
	}
	switch {
	case f.NArg() != 1:
		return wrong("limits set takes one name, after the flags")
	case l.Running == 0 && l.Rate == 0:
		return wrong("limits set: set -running or -rate; pause stops jobs")
	}
	return t.change("limit-set", "set", admin.Command{Names: f.Args(), Limit: l})
}

func (t *tool) listLimits() error {
	var all []admin.Limit
	var paused []durable.Pause
	answer, err := t.get(t.ctx, "limits", nil, &all)
	if err != nil {
		return err
	}
	pauses, err := t.get(t.ctx, "pauses", nil, &paused)
	if err != nil {
		return err
	}
	if t.json {
		if err := t.raw(answer); err != nil {
			return err
		}
		return t.raw(pauses)
	}
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tOF\tRUNNING\tRATE\tLANES\tWAITING\tNEXT TOKEN")
	for _, i := range all {
		of, running, rate, lanes, next := "all", fmt.Sprint(i.Taken), "-", "-", "-"
		if i.Kind != "" {
			of = line(i.Kind)
		}
		if i.Running > 0 {
			running += fmt.Sprintf(" of %d", i.Running)
		}
		if i.Rate > 0 {
			rate = fmt.Sprintf("%v/s, burst %d", i.Rate, i.Burst)
		}
		if i.PerLane {
			of += ", each lane"
			lanes = fmt.Sprint(i.Lanes)
		}
		if i.Next != nil {
			next = when(*i.Next)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\n", line(i.Name), of, running, rate, lanes, i.Waiting, next)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, p := range paused {
		until := ""
		if !p.Until.IsZero() {
			until = ", until " + when(p.Until)
		}
		fmt.Fprintf(t.out, "paused: %s%s\n", line(p.String()), until)
	}
	return nil
}

func (t *tool) pause(args []string) error  { return t.pauseOrResume("pause", "paused", args) }
func (t *tool) resume(args []string) error { return t.pauseOrResume("resume", "goes on", args) }

func (t *tool) pauseOrResume(what, yes string, args []string) error {
	var c admin.Command
	f := newFlags(what, t.err)
	f.StringVar(&c.Kind, "kind", "", "jobs of a kind")
	f.StringVar(&c.Lane, "lane", "", "jobs of a lane")
	f.BoolVar(&c.All, "all", false, "the whole queue")
	if what == "pause" {
		f.Func("for", "then it goes on by itself; without it at resume", func(s string) error {
			d, err := time.ParseDuration(s)
			if c.For = d.Seconds(); err == nil && d == 0 {
				err = errors.New("0 would last until resume")
			}
			return err
		})
	}
	if err := parse(f, args); err != nil {
		return err
	}
	switch {
	case f.NArg() > 0:
		return wrong("%s: unexpected argument %q", what, f.Arg(0))
	case c.All == (c.Kind+c.Lane != ""):
		return wrong("%s needs -kind, -lane or both, or else -all", what)
	}
	return t.change(what, yes, c)
}

func (t *tool) stop(args []string) error {
	return t.onRefs("stop", "asked to end", args)
}
