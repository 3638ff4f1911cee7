package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

// While the end of an older job was being stored, which takes the key again, a newer one was stored and has begun.
// If that fails, too, the older one ends: with a Retain it is kept as done, with its error.
func TestNewerMeetsOlderRetry(t *testing.T) {
	t.Parallel()
	srv := server(t)
	for _, job := range []durable.Job{{}, {Retain: time.Hour}, {Retain: time.Hour, RetainPayload: true}} {
		newerMeetsOlderRetry(t, newStore(srv), job)
	}
}

func newerMeetsOlderRetry(t *testing.T, s *store, job durable.Job) {
	q, err := durable.Open(t.Context(), s.Open(t), durable.WithBackoff(func(int) time.Duration { return time.Hour }))
	require.NoError(t, err)
	t.Cleanup(func() { q.Close() })
	ends := map[string]chan error{"1": make(chan error), "2": make(chan error)}
	began := make(chan bool, 2)
	q.Handle("k", func(_ context.Context, a *durable.Attempt) error { began <- true; return <-ends[string(a.Job.Payload)] })
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- q.Run(ctx) }()
	job.Kind, job.Key, job.FreeWhenBegun = "k", "k", true
	var refs []durable.Ref
	for _, value := range []string{"1", "2"} {
		job.Payload = []byte(value)
		ref, err := q.Add(t.Context(), job)
		require.NoError(t, err)
		refs = append(refs, ref)
		<-began
	}
	_, err = s.pool(t).Exec(t.Context(), `update `+s.schema+`.job set state = 0, key = given_key, holder = null, due = now() + interval '1 hour', version = version + 1, last_error = 'x'
		where id = (select min(id) from `+s.schema+`.job)`)
	require.NoError(t, err)
	i, err := q.Lookup(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, refs[0], i.Ref)
	ends["2"] <- errors.New("x")
	require.Eventually(t, func() bool {
		i, err := q.Lookup(t.Context(), "k")
		return err == nil && i.Ref == refs[1]
	}, patience, 10*time.Millisecond)
	ends["1"] <- nil // its lease is lost
	stop()
	require.NoError(t, <-done)
	i, err = q.Get(t.Context(), refs[0])
	if job.Retain == 0 {
		require.ErrorIs(t, err, durable.ErrNotFound)
		return
	}
	require.NoError(t, err)
	require.Equal(t, durable.Done, i.State)
	require.Equal(t, map[bool]string{true: "1", false: ""}[job.RetainPayload], string(i.Job.Payload))
	require.Equal(t, "k 1 x", fmt.Sprint(i.Job.Key, " ", i.Attempt, " ", i.LastError))
	require.WithinRange(t, i.End, i.Job.At, time.Now().Add(time.Minute))
	require.NotEmpty(t, i.Worker)
	require.NoError(t, q.Delete(t.Context(), refs[0]))
}

// A job that has ended is remembered for as long as an older one of its key has not ended, and is removed then.
func TestLastOfAKeyIsKept(t *testing.T) {
	t.Parallel()
	s := newStore(server(t))
	e := s.open(t)
	q, err := durable.Open(t.Context(), e)
	require.NoError(t, err)
	t.Cleanup(func() { q.Close() })
	ends := map[string]chan error{"1": make(chan error), "2": make(chan error)}
	began := make(chan bool, 2)
	q.Handle("k", func(_ context.Context, a *durable.Attempt) error { began <- true; return <-ends[string(a.Job.Payload)] })
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- q.Run(ctx) }()
	for _, value := range []string{"1", "2"} {
		_, err := q.Add(t.Context(), durable.Job{Kind: "k", Key: "k", FreeWhenBegun: true, Payload: []byte(value)})
		require.NoError(t, err)
		<-began
	}
	pool := s.pool(t)
	rows := func() (n int) {
		require.NoError(t, pool.QueryRow(t.Context(), "select count(*) from "+s.schema+".job").Scan(&n))
		return n
	}
	_, err = pool.Exec(t.Context(), `update `+s.schema+`.job set born = born - interval '1 hour'`)
	require.NoError(t, err)
	ends["2"] <- nil
	require.Eventually(t, func() bool {
		infos := 0
		for range q.All(t.Context(), durable.Filter{}) {
			infos++
		}
		return infos == 1
	}, patience, 10*time.Millisecond)
	require.Equal(t, 2, rows())
	ends["1"] <- errors.New("x")
	require.Eventually(t, func() bool { return rows() == 1 }, patience, 10*time.Millisecond)
	stop()
	require.NoError(t, <-done)
}

// In a caller's transaction, too, a waiting job that has expired does not have its key any more, also for a role that
// only adds jobs.
func TestExpiredHolderTx(t *testing.T) {
	t.Parallel()
	s := newStore(server(t))
	e := s.open(t)
	q, err := durable.Open(t.Context(), e)
	require.NoError(t, err)
	t.Cleanup(func() { q.Close() })
	pool := s.pool(t)
	_, err = pool.Exec(t.Context(), postgres.Grants(s.schema))
	require.NoError(t, err)
	expired := func() {
		for added := false; !added; { // a job that expires before Add is called is refused
			now, _, err := e.Now(t.Context())
			require.NoError(t, err)
			_, err = q.Add(t.Context(), durable.Job{Kind: "k", Key: "k", Expires: now.Add(50 * time.Millisecond)})
			if added = !errors.Is(err, durable.ErrInvalid); added {
				require.NoError(t, err)
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	has := func(ref durable.Ref) {
		i, err := q.Lookup(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, ref, i.Ref)
		ok, err := q.Cancel(t.Context(), ref)
		require.NoError(t, err)
		require.True(t, ok)
	}
	for _, on := range []string{"", "'refuse'", "'keep'", "'replace'", "'later'"} {
		expired()
		sql := "select " + s.schema + ".add_job('k', key => 'k', due => now() + interval '1 hour')"
		if on != "" {
			sql = "select " + s.schema + ".add_job('k', key => 'k', due => now() + interval '1 hour', on_key => " + on + ")"
		}
		var ref *durable.Ref
		require.NoError(t, pool.QueryRow(t.Context(), sql).Scan(&ref))
		require.NotNil(t, ref, on)
		has(*ref)
	}
	for _, role := range []string{"none", s.schema + "_add"} {
		expired()
		var refs []durable.Ref
		require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "set local role "+role); err != nil {
				return err
			}
			refs, err = e.AddTx(t.Context(), tx, durable.Job{Kind: "k", Key: "k", After: time.Hour}, durable.Job{Kind: "k", Key: "other " + role, After: time.Hour})
			return err
		}))
		has(refs[0])
	}
}

// A job that has begun does not run again after a newer one of its key has begun, also if that is dead and was deleted.
func TestDeletedNewerStays(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e, pool := s.open(t), s.pool(t)
	attempts, fail := make(chan string, 1000), make(chan bool)
	q, _ := runQueue(t, e, func(_ context.Context, a *durable.Attempt) error {
		attempts <- string(a.Job.Payload)
		if string(a.Job.Payload) == "older" {
			<-fail
		}
		return errors.New("it fails")
	})
	add := func(payload string, most int) durable.Ref {
		ref, err := q.Add(t.Context(), durable.Job{Kind: "k", Key: "k", FreeWhenBegun: true, Payload: []byte(payload), MaxAttempts: most})
		require.NoError(t, err)
		require.Equal(t, payload, await(t, attempts))
		return ref
	}
	older := add("older", 1000)
	newer := add("newer", 1)
	require.Eventually(t, func() bool {
		i, err := q.Get(t.Context(), newer)
		return err == nil && i.State == durable.Dead
	}, patience, 10*time.Millisecond)
	s.exec(t, pool, "update SCHEMA.job set born = born - interval '1 hour'")
	require.NoError(t, q.Delete(t.Context(), newer))
	failsForGood(t, q, older, fail, attempts)
}

// failsForGood closes fail, and checks that the older job, which fails then, does not run again.
func failsForGood(t *testing.T, q *durable.Queue, older durable.Ref, fail chan bool, attempts chan string) {
	close(fail)
	require.Eventually(t, func() bool {
		_, err := q.Get(t.Context(), older)
		return errors.Is(err, durable.ErrNotFound) || len(attempts) > 0
	}, patience, 10*time.Millisecond)
	require.Empty(t, attempts, "the older one runs again")
}

// beganTwice returns two jobs of one key that have begun. The older one runs, and fails once fail is closed. The
// newer one has failed, and waits for an hour.
func beganTwice(t *testing.T, s *store) (q *durable.Queue, pool *pgxpool.Pool, older, newer durable.Ref, fail chan bool, attempts chan string) {
	attempts, fail = make(chan string, 1000), make(chan bool)
	q, _ = runQueue(t, s.open(t), func(_ context.Context, a *durable.Attempt) error {
		attempts <- string(a.Job.Payload)
		if string(a.Job.Payload) == "older" {
			<-fail
			return errors.New("it fails")
		}
		return durable.RetryAfter(time.Hour, errors.New("it fails"))
	})
	add := func(payload string) durable.Ref {
		ref, err := q.Add(t.Context(), durable.Job{Kind: "k", Key: "k", FreeWhenBegun: true, Payload: []byte(payload)})
		require.NoError(t, err)
		require.Equal(t, payload, await(t, attempts))
		return ref
	}
	older, newer = add("older"), add("newer")
	require.Eventually(t, func() bool {
		i, err := q.Get(t.Context(), newer)
		return err == nil && i.State == durable.Waiting
	}, patience, 10*time.Millisecond)
	return q, s.pool(t), older, newer, fail, attempts
}

// The same holds if the newer one waited for its next attempt, and another job that replaced it was canceled.
func TestReplacedNewerStays(t *testing.T) {
	t.Parallel()
	for _, sql := range []bool{false, true} {
		s := sharedStore(t)
		q, pool, older, _, fail, attempts := beganTwice(t, s)
		var newest durable.Ref
		var err error
		if sql {
			err = pool.QueryRow(t.Context(), "select "+s.schema+".add_job('k', key => 'k', on_key => 'replace', due => now() + interval '1 hour')").Scan(&newest)
		} else {
			newest, err = q.Add(t.Context(), durable.Job{Kind: "k", Key: "k", OnKey: durable.Replace, After: time.Hour})
		}
		require.NoError(t, err)
		ok, err := q.Cancel(t.Context(), newest)
		require.NoError(t, err)
		require.True(t, ok)
		failsForGood(t, q, older, fail, attempts)
	}
}

// The same holds if the newer one has expired while it waited for its next attempt, and a job that took its key was
// canceled. The newer one dies as expired when its turn comes, although a job newer than itself is there.
func TestExpiredNewerStays(t *testing.T) {
	t.Parallel()
	for name, add := range map[string]string{"refuse": "", "replace": "", "sql": "select SCHEMA.add_job('k', key => 'k', due => now() + interval '1 hour')"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sharedStore(t)
			q, pool, older, newer, fail, attempts := beganTwice(t, s)
			s.exec(t, pool, "update SCHEMA.job set expires = now() where claim > 0 and state = 0")
			job := durable.Job{Kind: "k", Key: "k", After: time.Hour}
			var newest durable.Ref
			var err error
			switch name {
			case "sql":
				err = pool.QueryRow(t.Context(), strings.ReplaceAll(add, "SCHEMA", s.schema)).Scan(&newest)
			case "replace":
				job.OnKey = durable.Replace
				fallthrough
			default:
				newest, err = q.Add(t.Context(), job)
			}
			require.NoError(t, err)
			_, err = q.Reschedule(t.Context(), newer, time.Now())
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				i, err := q.Get(t.Context(), newer)
				return err == nil && i.State == durable.Dead
			}, patience, 10*time.Millisecond)
			ok, err := q.Cancel(t.Context(), newest)
			require.NoError(t, err)
			require.True(t, ok)
			failsForGood(t, q, older, fail, attempts)
		})
	}
}
