package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/tickwheel/tickwheel/durable/admin"
)

// schedules lists them, or does something to those that are named.
func (t *tool) schedules(args []string) error {
	if len(args) == 0 {
		return t.listSchedules()
	}
	yes, ok := map[string]string{"pause": "paused", "resume": "goes on", "delete": "deleted", "run-now": "runs"}[args[0]]
	switch {
	case !ok:
		return wrong("schedules: unknown command %q", args[0])
	case len(args) == 1:
		return wrong("schedules %s needs one or more names", args[0])
	}
	return t.change("schedule-"+args[0], yes, admin.Command{Names: args[1:]})
}

func (t *tool) listSchedules() error {
	var all []admin.Schedule
	answer, err := t.get(t.ctx, "schedules", nil, &all)
	if err != nil {
		return err
	}
	if t.json {
		return t.raw(answer)
	}
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSPEC\tKIND\tLAST\tNEXT")
	for _, i := range all {
		next := "-"
		switch {
		case i.Next != nil:
			next = when(*i.Next)
		case i.Paused:
			next = "paused"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", line(i.Name), line(i.Spec), line(i.Kind), stamp(i.Last), next)
	}
	return w.Flush()
}
