package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tickwheel/tickwheel/durable"
)

// tool is what the commands work with.
type tool struct {
	*durable.Queue
	ctx      context.Context
	out, err io.Writer
}

var commands = map[string]func(t *tool, args []string) error{
	"list": (*tool).list, "show": (*tool).show, "cancel": (*tool).cancel, "redrive": (*tool).redrive, "stats": (*tool).stats,
	"schedules": (*tool).schedules, "limits": (*tool).limits, "pause": (*tool).pause, "resume": (*tool).resume, "stop": (*tool).stop,
}

var states = map[string]durable.State{"": 0, "waiting": durable.Waiting, "running": durable.Running, "dead": durable.Dead}

// when writes a time as people read it, and how far off it is.
func when(t time.Time) string {
	return fmt.Sprintf("%s (%v)", t.Local().Format(time.DateTime), time.Until(t).Round(time.Second))
}

// printable returns a text as a terminal may have it: what is not to be seen, and could
// move its cursor or change what it shows, is written as Go writes it in a string.
func printable(s string) string {
	var b strings.Builder
	for i, n := 0, 0; i < len(s); i += n {
		var r rune
		switch r, n = utf8.DecodeRuneInString(s[i:]); {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\n' || r == '\t' || unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
		}
	}
	return b.String()
}

func (t *tool) list(args []string) error {
	f := newFlags("list", t.err)
	state := f.String("state", "", "only those of a state")
	kind := f.String("kind", "", "only those of a kind")
	most := f.Int("n", 100, "so many at the most; 0: all")
	if err := parse(f, args); err != nil {
		return err
	}
	s, ok := states[*state]
	if !ok || f.NArg() > 0 || *most < 0 {
		return errUsage
	}
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "REF\tKIND\tSTATE\tATTEMPT\tDUE\tERROR")
	n := 0
	for i, err := range t.All(t.ctx, durable.Filter{State: s, Kind: *kind}) {
		if err != nil {
			return err
		}
		if n++; *most > 0 && n > *most {
			fmt.Fprintln(t.err, "there are more: -n 0 lists all")
			break
		}
		line, _, _ := strings.Cut(i.LastError, "\n")
		fmt.Fprintf(w, "%s\t%s\t%v\t%d\t%s\t%s\n", i.Ref, printable(i.Job.Kind), i.State, i.Attempt, when(i.Due), strings.ReplaceAll(printable(line), "\t", " "))
	}
	return w.Flush()
}

func (t *tool) show(args []string) error {
	if len(args) != 1 {
		return errUsage
	}
	i, err := t.Get(t.ctx, durable.Ref(args[0]))
	if err != nil {
		return err
	}
	fmt.Fprintf(t.out, "ref      %s\nkind     %s\nstate    %v\nattempt  %d of %d\ndue      %s\nfirst    %s\nkey      %s\n",
		i.Ref, printable(i.Job.Kind), i.State, i.Attempt, i.Job.MaxAttempts, when(i.Due), when(i.Job.At), printable(i.Job.Key))
	if i.LastError != "" {
		fmt.Fprintf(t.out, "error    %s\n", strings.ReplaceAll(printable(i.LastError), "\n", "\n         "))
	}
	payload := fmt.Sprintf("%x", i.Job.Payload)
	if utf8.Valid(i.Job.Payload) {
		payload = printable(string(i.Job.Payload))
	}
	fmt.Fprintf(t.out, "payload  %s\n", payload)
	return nil
}

// each calls do for each Ref and says what came of it; an error is the last one.
func (t *tool) each(refs []string, yes, no string, do func(durable.Ref) (bool, error)) (err error) {
	for _, ref := range refs {
		ok, e := do(durable.Ref(ref))
		ref := printable(ref)
		switch {
		case e != nil:
			fmt.Fprintf(t.out, "%s: %s\n", ref, printable(e.Error()))
			err = errors.New("not all was done")
		case ok:
			fmt.Fprintf(t.out, "%s: %s\n", ref, yes)
		default:
			fmt.Fprintf(t.out, "%s: %s\n", ref, no)
			err = errors.New("not all was done")
		}
	}
	return err
}

func (t *tool) cancel(args []string) error {
	f := newFlags("cancel", t.err)
	key := f.String("key", "", "of the job that has this key")
	if err := parse(f, args); err != nil {
		return err
	}
	const yes, no = "canceled", "not canceled: it runs, or has ended"
	switch {
	case *key != "" && f.NArg() == 0:
		return t.each([]string{*key}, yes, no, func(k durable.Ref) (bool, error) { return t.CancelKey(t.ctx, string(k)) })
	case *key == "" && f.NArg() > 0:
		return t.each(f.Args(), yes, no, func(r durable.Ref) (bool, error) { return t.Cancel(t.ctx, r) })
	}
	return errUsage
}

func (t *tool) redrive(args []string) error {
	f := newFlags("redrive", t.err)
	all := f.Bool("all", false, "all that are dead")
	kind := f.String("kind", "", "only those of a kind")
	if err := parse(f, args); err != nil {
		return err
	}
	refs := f.Args()
	if *all == (len(refs) > 0) || *kind != "" && !*all {
		return errUsage
	}
	if *all {
		for i, err := range t.All(t.ctx, durable.Filter{State: durable.Dead, Kind: *kind}) {
			if err != nil {
				return err
			}
			refs = append(refs, string(i.Ref))
		}
	}
	return t.each(refs, "waits again", "", func(r durable.Ref) (bool, error) {
		err := t.Redrive(t.ctx, r)
		return err == nil, err
	})
}

func (t *tool) stats(args []string) error {
	if len(args) > 0 {
		return errUsage
	}
	type group struct {
		kind  string
		state durable.State
	}
	counts, overdue, next := map[group]int{}, 0, time.Time{}
	now := time.Now()
	for i, err := range t.All(t.ctx, durable.Filter{}) {
		if err != nil {
			return err
		}
		counts[group{i.Job.Kind, i.State}]++
		if i.State != durable.Waiting {
			continue
		}
		if i.Due.Before(now) {
			overdue++
		}
		if next.IsZero() || i.Due.Before(next) {
			next = i.Due
		}
	}
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KIND\tSTATE\tJOBS")
	groups := slices.SortedFunc(maps.Keys(counts), func(a, b group) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.state, b.state))
	})
	for _, g := range groups {
		fmt.Fprintf(w, "%s\t%v\t%d\n", printable(g.kind), g.state, counts[g])
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if !next.IsZero() {
		fmt.Fprintf(t.out, "%d overdue; the first is due %s\n", overdue, when(next))
	}
	return t.unhandled()
}

// unhandled says which kinds no worker runs.
func (t *tool) unhandled() error {
	found, err := t.Unhandled(t.ctx)
	for _, u := range found {
		fmt.Fprintf(t.out, "no worker runs %q; the first is due %s: %s\n", printable(u.Kind), when(u.Due), u.Oldest)
	}
	return err
}
