package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
)

// A trigger of the user's that refuses one job fails the Add of that job alone, and one that refuses
// a claim or an end leaves those beside it: what shares a commit is the library's affair.
func TestTriggerRefusesOne(t *testing.T) {
	t.Parallel()
	s := newStore(server(t))
	e, pool := s.open(t), s.pool(t)
	s.exec(t, pool, `create function SCHEMA.refuse() returns trigger language plpgsql as $$ begin
		if tg_op = 'INSERT' and convert_from(new.payload, 'UTF8') = 'bad' then raise exception 'no bad jobs'; end if;
		if tg_op = 'UPDATE' and new.state = 1 and convert_from(old.payload, 'UTF8') = 'unclaimed' then raise exception 'no claim'; end if;
		if tg_op = 'UPDATE' and new.state in (2, 3) and convert_from(old.payload, 'UTF8') = 'endless' then raise exception 'no end'; end if;
		return new; end $$`)
	s.exec(t, pool, "create trigger refuse before insert or update on SCHEMA.job for each row execute function SCHEMA.refuse()")
	q, err := durable.Open(t.Context(), e)
	require.NoError(t, err)
	defer q.Close()
	for _, kind := range []string{"k", "limited"} {
		q.Handle(kind, func(context.Context, *durable.Attempt) error { return nil })
	}

	for _, form := range []durable.Job{{}, {Key: "key"}, {Key: "later", OnKey: durable.Replace}} {
		var callers sync.WaitGroup
		for i := range 200 {
			callers.Go(func() {
				j := form
				j.Kind, j.Payload, j.After = "k", []byte("good"), time.Hour
				if j.Key != "" {
					j.Key += fmt.Sprint(i)
				}
				if i%20 == 0 {
					j.Payload = []byte("bad")
				}
				ref, err := q.Add(t.Context(), j)
				if i%20 == 0 {
					assert.ErrorContains(t, err, "no bad jobs")
					assert.NotErrorIs(t, err, durable.ErrUncertain)
					return
				}
				assert.NoError(t, err, "%d %q", i, j.Key)
				assert.NotEmpty(t, ref)
			})
		}
		callers.Wait()
	}
	b, err := q.Backlog(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 3*190, b.Waiting)

	jobs := make([]durable.Job, 40)
	for i := range jobs {
		jobs[i] = durable.Job{Kind: "k", Payload: []byte("good")}
	}
	jobs[7].Payload, jobs[11].Payload, jobs[12].Payload = []byte("endless"), []byte("unclaimed"), []byte("unclaimed")
	jobs[12].Kind = "limited"
	require.NoError(t, q.SetLimit(t.Context(), "l", durable.Limit{Kind: "limited", Running: 1}))
	refs, err := q.AddMany(t.Context(), jobs...)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	require.Eventually(t, func() bool { return q.Stats().Done == 37 }, patience, 10*time.Millisecond, "%v", q.Stats())
	s.exec(t, pool, "drop trigger refuse on SCHEMA.job")
	require.Eventually(t, func() bool { return q.Stats().Done == 40 }, patience, 10*time.Millisecond)
	stop()
	require.NoError(t, <-done)
	_, err = q.Get(t.Context(), refs[7])
	require.ErrorIs(t, err, durable.ErrNotFound)
}
