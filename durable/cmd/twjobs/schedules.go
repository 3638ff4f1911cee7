package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/tickwheel/tickwheel/durable"
)

// schedules lists them, or does something to those that are named.
func (t *tool) schedules(args []string) error {
	if len(args) == 0 {
		return t.listSchedules()
	}
	verbs := map[string]struct {
		done string
		do   func(name string) error
	}{
		"pause":   {"paused", func(name string) error { return t.PauseSchedule(t.ctx, name) }},
		"resume":  {"goes on", func(name string) error { return t.ResumeSchedule(t.ctx, name) }},
		"delete":  {"deleted", func(name string) error { return t.DeleteSchedule(t.ctx, name) }},
		"run-now": {"runs", func(name string) error { _, err := t.RunNow(t.ctx, name); return err }},
	}
	verb, ok := verbs[args[0]]
	if !ok || len(args) == 1 {
		return errUsage
	}
	return t.each(args[1:], verb.done, "", func(name durable.Ref) (bool, error) {
		err := verb.do(string(name))
		return err == nil, err
	})
}

func (t *tool) listSchedules() error {
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSPEC\tKIND\tLAST\tNEXT")
	for i, err := range t.Schedules(t.ctx) {
		if err != nil {
			return err
		}
		spec, last, next := printable(i.Spec), "-", "-"
		if i.Spec == "" {
			spec = "(in code)"
		}
		if !i.Last.IsZero() {
			last = i.Last.Local().Format(time.DateTime)
		}
		switch {
		case !i.Next.IsZero():
			next = when(i.Next)
		case i.Paused:
			next = "paused"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", printable(i.Name), spec, printable(i.Job.Kind), last, next)
	}
	return w.Flush()
}
