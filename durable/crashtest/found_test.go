package crashtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/crashtest"
)

// failing are tests that Run has to fail, each in a process of its own, and what the output has.
var failing = map[string]struct {
	scenario crashtest.Scenario
	outputs  []string
}{
	"charges twice": {shop(byCall), []string{
		"a crash at the end of charge, attempt 2, at 2026-01-01T01:00:00Z", "11 charges, 12 reports", "10 charges, 12 reports",
	}},
	"takes its own signal for another's": {orders(func(refused map[string]bool, order string) { refused[order] = true }), []string{
		"a crash at the return of Signal in payment, attempt 1, at 2026-01-01T05:00:00Z",
	}},
	"remembers in its process": {forgetful, []string{"a crash at the end of job, attempt 1, at 2026-01-01T01:00:00Z"}},
	"panics after its effect":  {panicking, []string{"a crash at the end of job, attempt 1, at 2026-01-01T00:00:00Z"}},
	"at most once": {atMostOnce, []string{
		"a crash at the begin of job, attempt 1", "The job is dead: durable: the last attempt did not end",
	}},
	"one payload of ten":  {onePayload, []string{"a crash at the end of job, attempt 1, at 2026-01-01T00:00:00Z, #8 "}},
	"third of three":      {third, []string{"a crash at the end of job, attempt 1, at 2026-01-01T00:00:00Z, #3 "}},
	"the last kind":       {lastKind, []string{"a crash at the end of z, attempt 1, at 2026-01-01T00:00:00Z (job"}},
	"mail before its row": {mailing(mailFirst), []string{"a crash at the point mailed in job, attempt 1", "2 mails, 1 rows", "1 mails, 1 rows"}},
	"row before its mail": {mailing(rowFirst), []string{"a crash at the point written in job, attempt 1", "0 mails, 1 rows", "1 mails, 1 rows"}},
	"mail before the commit": {mailing(mailThenComplete), []string{
		"a crash at the call of Complete in job, attempt 1", "2 mails, 1 rows", "1 mails, 1 rows",
	}},
	"mail within the transaction": {mailing(mailThenCommit), []string{
		"a crash at the call of Commit in job, attempt 1", "2 mails, 1 rows", "1 mails, 1 rows",
	}},
	"mail after the commit": {mailing(commitThenMail), []string{
		"a crash at the return of Commit in job, attempt 1", "0 mails, 1 rows", "1 mails, 1 rows",
	}},
	"mail before an Add":  {mailing(mailThenAdd), []string{"a crash at the call of Add in job, attempt 1", "2 mails, 1 rows"}},
	"row after an Add":    {mailing(addThenRow), []string{"a crash at the return of Add in job, attempt 1", "2 mails, 1 rows"}},
	"half of an AddMany":  {mailing(addTwo), []string{"a crash at the middle of Add in job, attempt 1", "3 mails, 1 rows", "2 mails, 1 rows"}},
	"mail before a query": {mailing(mailThenGet), []string{"a crash at the call of Get in job, attempt 1", "0 mails, 1 rows"}},
	"random result":       {inRuns(1), []string{"the scenario is not the same each time. Without a crash it leaves\n", "\nand then\n"}},
	"random attempts":     {inRuns(2), []string{"not the same each time: it has not come to the begin of job, attempt 1, at 2026-01-01T00:00:00Z"}},
	"cannot start":        {brokenSetup(1), []string{"crashtest: Start: no"}},
	"cannot start again":  {brokenSetup(4), []string{"has not ended: no"}},
}

// byCall returns another key for each call.
func byCall(*durable.Attempt) string { return fmt.Sprint(calls.Add(1)) }

var calls atomic.Int64

// forgetful remembers by Ref what it has done, in a variable of its process.
func forgetful(t *testing.T, w *crashtest.World) any {
	n := 0
	w.Start(func(ctx context.Context, q *durable.Queue) error {
		done := map[durable.Ref]bool{}
		return handles(func(_ context.Context, a *durable.Attempt) error {
			if !done[a.Ref] {
				n++
			}
			done[a.Ref] = true
			return nil
		})(ctx, q)
	})
	add(t, w, durable.Job{Kind: "job", After: time.Hour})
	w.Advance(time.Hour)
	return n
}

func panicking(t *testing.T, w *crashtest.World) any {
	n := 0
	w.Start(handles(func(_ context.Context, a *durable.Attempt) error {
		if a.Number == 1 {
			n++
			panic("no")
		}
		return nil
	}))
	add(t, w, durable.Job{Kind: "job"})
	w.Advance(time.Hour)
	return n
}

func atMostOnce(t *testing.T, w *crashtest.World) any {
	ran := false
	w.Start(handles(func(context.Context, *durable.Attempt) error {
		ran = true
		return nil
	}))
	add(t, w, durable.Job{Kind: "job", MaxAttempts: 1})
	w.Advance(time.Hour)
	return ran
}

// onePayload fails for one of ten jobs that are due at the same time.
func onePayload(t *testing.T, w *crashtest.World) any {
	n := 0
	w.Start(handles(func(_ context.Context, a *durable.Attempt) error {
		if string(a.Job.Payload) == "7" {
			n++
		}
		return nil
	}))
	for i := range 10 {
		add(t, w, durable.Job{Kind: "job", Payload: fmt.Append(nil, i)})
	}
	w.Advance(time.Hour)
	return n
}

// third fails for the third of three jobs that are the same.
func third(t *testing.T, w *crashtest.World) any {
	n, order := 0, map[durable.Ref]int{}
	w.Start(handles(func(_ context.Context, a *durable.Attempt) error {
		if order[a.Ref] == 0 {
			order[a.Ref] = len(order) + 1
		}
		if order[a.Ref] == 3 {
			n++
		}
		return nil
	}))
	add(t, w, durable.Job{Kind: "job"}, durable.Job{Kind: "job"}, durable.Job{Kind: "job"})
	w.Advance(time.Hour)
	return n
}

// lastKind fails for a kind whose jobs run among others: a crash of one of these must not be
// one of theirs.
func lastKind(t *testing.T, w *crashtest.World) any {
	n := 0
	w.Start(func(_ context.Context, q *durable.Queue) error {
		q.Handle("a", func(context.Context, *durable.Attempt) error { return nil })
		q.Handle("z", func(context.Context, *durable.Attempt) error { n++; return nil })
		return nil
	})
	for range 10 {
		add(t, w, durable.Job{Kind: "a"}, durable.Job{Kind: "z"})
	}
	w.Advance(time.Hour)
	return n
}

// shopMail is a database with the rows of jobs that are done, and a mailer, which counts.
type shopMail struct {
	q     *durable.Queue
	rows  map[durable.Ref]bool
	mails int
}

// mailing has one job, whose handler has an effect unless the row of the job is there.
func mailing(handle func(ctx context.Context, a *durable.Attempt, s *shopMail) error) crashtest.Scenario {
	return func(t *testing.T, w *crashtest.World) any {
		s := shopMail{rows: map[durable.Ref]bool{}}
		w.Start(func(ctx context.Context, q *durable.Queue) error {
			q.Handle("mail", func(context.Context, *durable.Attempt) error { s.mails++; return nil })
			s.q = q
			return handles(func(ctx context.Context, a *durable.Attempt) error {
				if s.rows[a.Ref] {
					return nil
				}
				return handle(ctx, a, &s)
			})(ctx, q)
		})
		add(t, w, durable.Job{Kind: "job"})
		w.Advance(time.Hour)
		return fmt.Sprintf("%d mails, %d rows", min(s.mails, 3), len(s.rows))
	}
}

func mailFirst(ctx context.Context, a *durable.Attempt, s *shopMail) error {
	s.mails++
	crashtest.Point(ctx, "mailed")
	s.rows[a.Ref] = true
	return nil
}

func rowFirst(ctx context.Context, a *durable.Attempt, s *shopMail) error {
	s.rows[a.Ref] = true
	crashtest.Point(ctx, "written")
	s.mails++
	return nil
}

func mailThenComplete(ctx context.Context, a *durable.Attempt, s *shopMail) error {
	s.mails++
	err := crashtest.Complete(ctx, a)
	s.rows[a.Ref] = true
	return err
}

func mailThenCommit(ctx context.Context, a *durable.Attempt, s *shopMail) error {
	_ = crashtest.Complete(ctx, a)
	s.mails++
	crashtest.Commit(ctx, func() { s.rows[a.Ref] = true })
	return nil
}

func commitThenMail(ctx context.Context, a *durable.Attempt, s *shopMail) error {
	_ = crashtest.Complete(ctx, a)
	crashtest.Commit(ctx, func() { s.rows[a.Ref] = true })
	s.mails++
	return nil
}

func mailThenAdd(ctx context.Context, a *durable.Attempt, s *shopMail) error {
	s.mails++
	_, err := s.q.Add(ctx, durable.Job{Kind: "other", After: 2 * time.Hour})
	s.rows[a.Ref] = true
	return err
}

func addThenRow(ctx context.Context, a *durable.Attempt, s *shopMail) error {
	_, err := s.q.Add(ctx, durable.Job{Kind: "mail"})
	s.rows[a.Ref] = true
	return err
}

func addTwo(ctx context.Context, a *durable.Attempt, s *shopMail) error {
	_, err := s.q.AddMany(ctx, durable.Job{Kind: "mail"}, durable.Job{Kind: "mail"})
	s.rows[a.Ref] = true
	return err
}

func mailThenGet(ctx context.Context, a *durable.Attempt, s *shopMail) error {
	s.rows[a.Ref] = true
	_, err := s.q.Get(ctx, a.Ref)
	s.mails++
	return err
}

// inRuns returns a scenario that has its job in so many runs, and then no more.
func inRuns(n int) crashtest.Scenario {
	return func(t *testing.T, w *crashtest.World) any {
		n--
		w.Start(handles(func(context.Context, *durable.Attempt) error { return nil }))
		if n >= 0 {
			add(t, w, durable.Job{Kind: "job"})
		}
		w.Advance(time.Hour)
		return n >= 0
	}
}

// brokenSetup returns a scenario of which the n-th process does not start.
func brokenSetup(n int) crashtest.Scenario {
	return func(t *testing.T, w *crashtest.World) any {
		w.Start(func(ctx context.Context, q *durable.Queue) error {
			if n--; n == 0 {
				return errors.New("no")
			}
			return handles(func(context.Context, *durable.Attempt) error { return nil })(ctx, q)
		})
		add(t, w, durable.Job{Kind: "job"})
		w.Advance(time.Hour)
		return nil
	}
}

// TestFailing is for the processes that TestFound starts.
func TestFailing(t *testing.T) {
	name := os.Getenv("CRASHTEST_FAILING")
	if name == "" {
		t.Skip("TestFound calls it")
	}
	crashtest.Run(t, failing[name].scenario)
}

// What fails does at the first crash that shows, and does so alone.
func TestFound(t *testing.T) {
	for name, c := range failing {
		t.Run(name, func(t *testing.T) {
			output := fail(t, name, "^TestFailing$")
			for _, want := range c.outputs {
				require.Contains(t, output, want)
			}
			alone := regexp.MustCompile(`Alone: go test -run '(.*)'`).FindStringSubmatch(output)
			if alone == nil {
				require.NotContains(t, output, "a crash at")
				return
			}
			require.Equal(t, 1, strings.Count(output, "--- FAIL: TestFailing/"))
			output = fail(t, name, alone[1])
			require.Equal(t, 1, strings.Count(output, "=== RUN   TestFailing/"))
			require.Contains(t, output, c.outputs[0])
		})
	}
}

// fail runs TestFailing, which has to fail, and returns its output, without indentation.
func fail(t *testing.T, name, pattern string) string {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+pattern, "-test.v")
	cmd.Env = append(os.Environ(), "CRASHTEST_FAILING="+name)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "%s", out)
	require.Equal(t, 1, exit.ExitCode(), "%s", out) // and not 2, by a panic
	return regexp.MustCompile("(?m)^ +").ReplaceAllString(string(out), "")
}
