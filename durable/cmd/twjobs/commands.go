package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/admin"
)

// tool is what the commands work with.
type tool struct {
	*client
	ctx      context.Context
	json     bool // what is said is what the handler has answered
	out, err io.Writer
}

var commands = map[string]func(t *tool, args []string) error{
	"list": (*tool).list, "show": (*tool).show, "why": (*tool).why, "await": (*tool).await, "cancel": (*tool).cancel, "redrive": (*tool).redrive, "stats": (*tool).stats,
	"delete": (*tool).remove, "run-now": (*tool).runNow, "reschedule": (*tool).reschedule,
	"schedules": (*tool).schedules, "workers": (*tool).workers,
	"limits": (*tool).limits, "pause": (*tool).pause, "resume": (*tool).resume, "stop": (*tool).stop,
}

// when writes a time as people read it, with its zone, and how far off it is.
func when(t time.Time) string {
	return fmt.Sprintf("%s (%v)", stamp(&t), time.Until(t).Round(time.Second))
}

// stamp writes a time with its zone, and none as "-".
func stamp(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05 -07:00")
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

// line returns a text as it may stand in a table.
func line(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return strings.ReplaceAll(printable(s), "\t", " ")
}

// raw prints what a handler has answered, a line for each value. JSON has no control
// characters, and of the others it is all escaped that a terminal might obey.
func (t *tool) raw(answer json.RawMessage) error {
	var b strings.Builder
	for _, r := range string(answer) {
		if r != '\n' && !unicode.IsPrint(r) {
			for _, half := range utf16.AppendRune(nil, r) {
				fmt.Fprintf(&b, `\u%04x`, half)
			}
			continue
		}
		b.WriteRune(r)
	}
	_, err := fmt.Fprintln(t.out, strings.TrimSpace(b.String()))
	return err
}

const maxPage = 1000

// pairs are flags that may be there several times.
type pairs []string

func (p *pairs) String() string     { return strings.Join(*p, " ") }
func (p *pairs) Set(s string) error { *p = append(*p, s); return nil }

func (t *tool) list(args []string) error {
	f, meta := newFlags("list", t.err), pairs{}
	query := url.Values{}
	for _, name := range []string{"state", "kind", "lane"} {
		f.Func(name, "only jobs of this "+name, func(s string) error { query.Set(name, s); return nil })
	}
	f.Var(&meta, "meta", "only jobs with name=value in their Meta; may be repeated")
	most := f.Int("n", 100, "the largest number of jobs; 0: all")
	if err := parse(f, args); err != nil {
		return err
	}
	switch state := query.Get("state"); {
	case f.NArg() > 0:
		return wrong("list: unexpected argument %q", f.Arg(0))
	case *most < 0:
		return wrong("list: -n %d is negative", *most)
	case state != "" && !slices.Contains([]string{"waiting", "running", "dead", "done", "canceled"}, state):
		return wrong("list: the state %q is not waiting, running, dead, done or canceled", state)
	}
	query["meta"] = meta
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	if !t.json {
		fmt.Fprintln(w, "REF\tKIND\tSTATE\tATTEMPT\tDUE\tERROR")
	}
	for left := *most; ; {
		var page admin.Listing
		n := maxPage
		if *most > 0 {
			n = min(n, left)
		}
		query.Set("n", strconv.Itoa(n))
		answer, err := t.get(t.ctx, "list", query, &page)
		if err != nil {
			return err
		}
		if t.json {
			err = t.raw(answer)
		} else {
			writeJobs(w, page.Jobs)
		}
		left -= len(page.Jobs)
		switch {
		case err != nil || page.Next == "":
			return errors.Join(err, w.Flush())
		case *most > 0 && left <= 0:
			fmt.Fprintln(t.err, "there are more: -n 0 lists all")
			return w.Flush()
		}
		query.Set("after", page.Next)
	}
}

func writeJobs(w io.Writer, jobs []admin.Job) {
	for _, j := range jobs {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\n", line(string(j.Ref)), line(j.Kind), line(j.State), j.Attempt, when(j.Due), line(j.Error))
	}
}

func (t *tool) show(args []string) error {
	if len(args) != 1 {
		return wrong("show needs one Ref")
	}
	var j admin.Job
	answer, err := t.get(t.ctx, "show", url.Values{"ref": args}, &j)
	if err != nil {
		return err
	}
	if t.json {
		return t.raw(answer)
	}
	field := func(name, text string) {
		if text != "" {
			fmt.Fprintf(t.out, "%-8s %s\n", name, strings.ReplaceAll(printable(text), "\n", "\n         "))
		}
	}
	field("ref", string(j.Ref))
	field("kind", j.Kind)
	field("state", j.State)
	field("attempt", fmt.Sprintf("%d of %d", j.Attempt, j.MaxAttempts))
	field("worker", j.Worker)
	field("due", when(j.Due))
	field("first", when(j.First))
	field("key", j.Key)
	field("lane", j.Lane)
	field("priority", j.Priority)
	for name, value := range j.Meta {
		field("meta", name+"="+value)
	}
	if j.Expires != nil {
		field("expires", when(*j.Expires))
	}
	if j.Began != nil {
		field("began", when(*j.Began))
	}
	if j.Ended != nil {
		field("ended", when(*j.Ended))
	}
	field("error", j.Error)
	for _, e := range j.Errors {
		field("failed", fmt.Sprintf("%s, attempt %d: %s", stamp(&e.At), e.Attempt, e.Error))
	}
	payload := printable(j.Payload)
	if len(j.Bytes) > 0 {
		payload = fmt.Sprintf("%x", j.Bytes)
	}
	fmt.Fprintf(t.out, "payload  %s\n", payload)
	return nil
}

// why prints why a job has not run, or a schedule has no occurrence.
func (t *tool) why(args []string) error {
	f, query := newFlags("why", t.err), url.Values{}
	schedule := f.String("schedule", "", "of the schedule of this name")
	if err := parse(f, args); err != nil {
		return err
	}
	switch {
	case *schedule != "" && f.NArg() == 0:
		query.Set("schedule", *schedule)
	case *schedule == "" && f.NArg() == 1:
		query.Set("ref", f.Arg(0))
	default:
		return wrong("why needs one Ref, or -schedule")
	}
	var r admin.Reason
	answer, err := t.get(t.ctx, "why", query, &r)
	switch {
	case err != nil && strings.Contains(err.Error(), "is not a Ref"):
		return fmt.Errorf("%w: for a schedule add -schedule before its name", err)
	case err != nil:
		return err
	}
	if t.json {
		return t.raw(answer)
	}
	_, err = fmt.Fprintf(t.out, "%s: %s\n", line(string(r.Cause)), printable(r.Text))
	return err
}

// endedAs is the exit status that says how a job has ended, unless it was done.
type endedAs int

func (e endedAs) Error() string { return "" } // it is printed already

var endings = map[string]endedAs{"dead": 3, "canceled": 4, "unknown": 5}

// await waits until a job has ended, and prints how. The timeout bounds each poll, and not the wait: a poll that finds
// nothing lasts for admin.AwaitFor, which is not the time of a slow answer.
func (t *tool) await(args []string) error {
	f := newFlags("await", t.err)
	if err := parse(f, args); err != nil {
		return err
	}
	if f.NArg() != 1 {
		return wrong("await needs one Ref")
	}
	poll, to := *t.client, *t.target
	if poll.target = &to; to.timeout > 0 {
		to.timeout = max(to.timeout, to.timeout+admin.AwaitFor) // the sum may overflow
	}
	for {
		var e admin.End
		answer, err := poll.get(t.ctx, "await", url.Values{"ref": {f.Arg(0)}}, &e)
		switch {
		case err != nil:
			return err
		case e.State == "":
			continue
		case t.json:
			err = t.raw(answer)
		default:
			_, err = fmt.Fprintln(t.out, e.State, line(e.Error))
		}
		if as := endings[e.State]; err == nil && as > 0 {
			return as
		}
		return err
	}
}

// change has a command done, and says what came of each.
func (t *tool) change(what, yes string, c admin.Command) error {
	var results []admin.Result
	answer, err := t.post(t.ctx, what, c, &results)
	if err != nil {
		return err
	}
	if t.json {
		err = t.raw(answer)
	}
	for _, r := range results {
		said := yes
		if !r.Done {
			err = errors.New("not all was done")
			said = "not done: " + line(r.Why+r.Error)
		}
		of := line(r.Ref)
		if c.All && what == "redrive" {
			of = fmt.Sprintf("%d jobs", r.Jobs)
			if r.Jobs == 1 {
				of = "1 job"
			}
		}
		if !t.json {
			fmt.Fprintf(t.out, "%s: %s\n", of, said)
		}
	}
	return err
}

func refs(args []string) []durable.Ref {
	all := make([]durable.Ref, len(args))
	for i, a := range args {
		all[i] = durable.Ref(a)
	}
	return all
}

// onRefs is change of what the Refs stand for.
func (t *tool) onRefs(what, yes string, args []string) error {
	if len(args) == 0 {
		return wrong("%s needs one or more Refs", what)
	}
	return t.change(what, yes, admin.Command{Refs: refs(args)})
}

func (t *tool) remove(args []string) error { return t.onRefs("delete", "deleted", args) }
func (t *tool) runNow(args []string) error { return t.onRefs("run-now", "is due now", args) }

func (t *tool) cancel(args []string) error {
	f := newFlags("cancel", t.err)
	key := f.String("key", "", "of the job that has this key")
	if err := parse(f, args); err != nil {
		return err
	}
	switch {
	case *key != "" && f.NArg() > 0:
		return wrong("cancel needs Refs or -key, not both")
	case *key != "":
		return t.change("cancel", "canceled", admin.Command{Key: *key})
	}
	return t.onRefs("cancel", "canceled", f.Args())
}

func (t *tool) reschedule(args []string) error {
	f := newFlags("reschedule", t.err)
	var at time.Time
	f.Func("at", "when they are due: 2030-01-02T15:04:05+02:00", func(s string) (err error) {
		at, err = time.Parse(time.RFC3339, s)
		return err
	})
	in := f.Duration("in", 0, "how long from now")
	if err := parse(f, args); err != nil {
		return err
	}
	if at.IsZero() == (*in == 0) {
		return wrong("reschedule needs -at or -in, not both")
	}
	if at.IsZero() {
		at = time.Now().Add(*in)
	}
	if f.NArg() == 0 {
		return wrong("reschedule needs one or more Refs")
	}
	return t.change("reschedule", "is due "+when(at), admin.Command{Refs: refs(f.Args()), At: at})
}

func (t *tool) redrive(args []string) error {
	f := newFlags("redrive", t.err)
	all := f.Bool("all", false, "all that are dead")
	kind := f.String("kind", "", "with -all: only those of a kind")
	if err := parse(f, args); err != nil {
		return err
	}
	switch {
	case *all && f.NArg() > 0:
		return wrong("redrive needs Refs or -all, not both")
	case *kind != "" && !*all:
		return wrong("redrive: -kind needs -all")
	case *all:
		return t.change("redrive", "wait again", admin.Command{All: true, Kind: *kind})
	}
	return t.onRefs("redrive", "waits again", f.Args())
}

func (t *tool) stats(args []string) error {
	if len(args) > 0 {
		return wrong("stats: unexpected argument %q", args[0])
	}
	var c admin.Counts
	answer, err := t.get(t.ctx, "counts", nil, &c)
	if err != nil {
		return err
	}
	if t.json {
		return t.raw(answer)
	}
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KIND\tSTATE\tJOBS")
	for _, g := range c.Groups {
		fmt.Fprintf(w, "%s\t%s\t%d\n", line(g.Kind), line(g.State), g.Jobs)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if c.First != nil {
		fmt.Fprintf(t.out, "%d overdue; the first is due %s\n", c.Overdue, when(*c.First))
	}
	var s admin.Summary
	if _, err = t.get(t.ctx, "summary", nil, &s); err != nil {
		return err
	}
	if s.Stuck > 0 {
		fmt.Fprintf(t.out, "stuck: %d handlers of the process that answers have not returned after their Timeout; its log names the jobs\n", s.Stuck)
	}
	if s.BacklogError != "" {
		return errors.New("cannot read which kinds no worker runs: " + s.BacklogError)
	}
	for _, o := range s.Kinds {
		if !o.Handled {
			fmt.Fprintf(t.out, "no worker runs %q; the first is due %s: %s\n", printable(o.Kind), when(o.Due), line(string(o.Oldest)))
		}
	}
	return nil
}

func (t *tool) workers(args []string) error {
	if len(args) > 0 {
		return wrong("workers: unexpected argument %q", args[0])
	}
	var all []admin.Worker
	answer, err := t.get(t.ctx, "workers", nil, &all)
	if err != nil {
		return err
	}
	if t.json {
		return t.raw(answer)
	}
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "LABEL\tHOST\tPROCESS\tBEGAN\tLEASE UNTIL\tJOBS\tOLDEST SINCE\tKINDS\tNAME")
	for _, i := range all {
		until := when(i.Until)
		if !i.Alive {
			until = "dead"
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%d\t%s\t%s\t%s\n", line(i.Label), line(i.Host), i.Process, stamp(i.Began), until,
			i.Jobs, stamp(i.Since), line(kindsOf(&i)), line(i.Name))
	}
	return w.Flush()
}

// kindsOf names the first kinds of a worker, and says how many others there are. All that are
// stored are in the JSON.
func kindsOf(w *admin.Worker) string {
	const most = 5
	some := strings.Join(w.Kinds[:min(len(w.Kinds), most)], ", ")
	switch more := w.AllKinds - min(len(w.Kinds), most); {
	case w.AllKinds == 0:
		return "not known"
	case more > 0:
		return fmt.Sprintf("%s and %d more", some, more)
	}
	return some
}

// newFlags and the like name what is wrong, and show how it is right.
func newFlags(name string, stderr io.Writer) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	return f
}

func parse(f *flag.FlagSet, args []string) error {
	err := f.Parse(args)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		return wrong("%v", err)
	}
	return err
}

// usageError is a wrong command.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func wrong(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }
