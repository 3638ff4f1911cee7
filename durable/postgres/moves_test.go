package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

// TestMoves makes moves in random order on a server, up to three at one time, some with a
// commit that fails or an answer that is lost, and after each step compares the table with
// a model. For each job the model tries the moves of the step one after another, in every
// order: one of them has to lead from the row as it was to the row as it is, with the
// answers that were given. POSTGRES_MOVES sets the number of steps, by default 300.
func TestMoves(t *testing.T) {
	steps := 300
	if n, err := strconv.Atoi(os.Getenv("POSTGRES_MOVES")); err == nil {
		steps = n
	}
	srv := shared.Test(t)
	for _, level := range []string{"read committed", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			s := newStore(srv)
			s.params = "&default_transaction_isolation=" + strings.ReplaceAll(level, " ", "%20")
			newTable(t, s).play(steps)
		})
	}
}

// jobState is a job's row, as far as moves depend on it. A row that is not there has phase
// absent.
type jobState struct {
	phase          int16
	holder         int64 // of one that runs
	claim, version int32
	key            string // by which it is found now
}

const (
	waits int16 = iota
	runs
	dead
	ended
	absent
)

// member is a worker, and what it knows.
type member struct {
	e    *postgres.Engine
	w    driver.Worker
	id   int64
	busy bool // with a move of this step: a Delivery is in one move at a time
	held map[string]*driver.Delivery
	mine map[string]int32 // by the claim, of what it runs under a lease that was never lost
	lost map[string]int32 // the same of what it runs since its lease was lost
}

// table is what is played at.
type table struct {
	t       *testing.T
	s       *store
	pool    *pgxpool.Pool // the test's own
	p       *proxy
	engines []*postgres.Engine // the second is behind the proxy
	members []*member
	recs    map[string]driver.Record
	refs    map[string]driver.Ref
	rows    map[string]jobState // after the last step
	alive   map[int64]bool      // workers whose lease is not over
	n       int                 // members that there were
	focus   string              // the job that most moves of this step are about
	calm    bool                // one move, and no fault
	cut     bool                // an answer may be lost
	counts  map[string]int
	history []string
}

// play is one move, on its way or done.
type play struct {
	name   string
	run    func(ctx context.Context)     // makes it, and sets effect
	effect map[string]effect             // what it has answered, by job
	done   func(now map[string]jobState) // if not nil: notes what has come of it
}

// effect is a move on one job: what it may make of a row, and whether its answer fits that.
type effect struct {
	answer string
	apply  func(jobState) []jobState
}

func newTable(t *testing.T, s *store) *table {
	b := &table{t: t, s: s, recs: map[string]driver.Record{}, refs: map[string]driver.Ref{}, rows: map[string]jobState{}, counts: map[string]int{}}
	direct := s.open(t)
	behind, p := s.behindProxy(t)
	b.p, b.engines, b.pool = p, []*postgres.Engine{direct, behind}, s.pool(t)
	s.failCommits(t, b.pool)
	for range 3 {
		b.members = append(b.members, b.join())
	}
	b.readWorkers()
	return b
}

// join is a worker that starts.
func (b *table) join() *member {
	e := b.engines[b.n%2]
	b.n++
	w, err := e.Work(b.t.Context(), workConfig(fmt.Sprint("w", b.n), time.Hour))
	require.NoError(b.t, err)
	return &member{e: e, w: w, id: postgres.WorkerID(w), held: map[string]*driver.Delivery{},
		mine: map[string]int32{}, lost: map[string]int32{}}
}

func (b *table) play(steps int) {
	for range steps {
		if rand.N(12) == 0 {
			b.disturb()
			continue
		}
		b.step()
	}
	b.t.Log(b.counts)
	for _, answer := range []string{"insert ok", "insert exists", "cancel true", "cancel false", "claim mine", "claim gone", "finish ok", "move true"} {
		require.NotZero(b.t, b.counts[answer], "%s: not played", answer)
	}
}

// disturb ends a lease or a worker.
func (b *table) disturb() {
	m := b.members[rand.N(len(b.members))]
	b.s.exec(b.t, b.pool, fmt.Sprintf("update SCHEMA.worker set until = now() - interval '1 second' where id = %d", m.id))
	maps.Copy(m.lost, m.mine)
	clear(m.mine)
	b.note("lease lost: %d", m.id)
	if rand.N(3) == 0 {
		i := slices.Index(b.members, m)
		b.members[i] = b.join()
		b.note("crash: %d is %d now", m.id, b.members[i].id)
	}
	b.readWorkers()
}

// readWorkers reads who lives.
func (b *table) readWorkers() {
	rows, err := b.pool.Query(b.t.Context(), "select id from "+b.s.schema+".worker where until > now()")
	require.NoError(b.t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(b.t, err)
	b.alive = map[int64]bool{}
	for _, id := range ids {
		b.alive[id] = true
	}
}

func (b *table) note(format string, args ...any) {
	b.history = append(b.history, fmt.Sprintf(format, args...))
	b.history = b.history[max(0, len(b.history)-40):]
}

// step makes up to three moves at one time, and checks what came of them.
func (b *table) step() {
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	for _, m := range b.members {
		m.busy = false
	}
	b.focus = ""
	b.focus = b.some()
	fault, n := rand.N(6), 1+rand.N(3)
	if fault == 0 {
		n = 3 // who fails is to be overtaken
	}
	var plays []*play
	for range n {
		if p := b.draw(); p != nil {
			plays = append(plays, p)
		}
	}
	b.calm, b.cut = len(plays) == 1 && fault > 1, fault == 1
	switch fault {
	case 0:
		b.s.arm(b.t, b.pool, 1+rand.N(4))
	case 1:
		b.p.cutNext.Store(true)
	}
	var wg sync.WaitGroup
	for _, p := range plays {
		wg.Go(func() {
			if !b.calm && rand.N(2) == 0 {
				time.Sleep(rand.N(20 * time.Millisecond)) // also between two tries of another
			}
			p.run(ctx)
		})
	}
	wg.Wait()
	b.p.cutNext.Store(false)
	b.s.arm(b.t, b.pool, 0)
	for _, p := range plays {
		for id, e := range p.effect {
			b.counts[p.name+" "+e.answer]++
			b.note("fault %d: %s %s: %s", fault, p.name, id, e.answer)
		}
	}
	b.check(plays)
}

// check compares the table with the model.
func (b *table) check(plays []*play) {
	now := b.read()
	for id := range b.recs {
		was, is := b.rowOf(b.rows, id), b.rowOf(now, id)
		if was.phase == ended && is.phase == absent {
			is = was // swept
		}
		var effects []effect
		for _, p := range plays {
			if e, ok := p.effect[id]; ok {
				effects = append(effects, e)
			}
		}
		old := time.Since(b.recs[id].Born) > 75*time.Second // such a job is removed at its end: remembered
		if !explains(effects, was, is, old) {
			b.fail("%s was %+v and is %+v; no order of these moves explains it: %v", id, was, is, effects)
		}
	}
	for _, p := range plays {
		if p.done != nil {
			p.done(now)
		}
	}
	b.checkKeys(now)
	for _, m := range b.members {
		for id, claim := range m.mine {
			if r := now[id]; r.phase != runs || r.holder != m.id || r.claim != claim {
				b.fail("%d has claimed %s (%d) and kept its lease, and the row is %+v", m.id, id, claim, r)
			}
		}
	}
	b.rows = now
	b.readWorkers()
}

// checkKeys checks that a job has its key while it waits or runs, and no other has it.
func (b *table) checkKeys(now map[string]jobState) {
	keys := map[string]string{}
	for id, r := range now {
		want := ""
		if r.phase == waits || r.phase == runs {
			want = b.recs[id].Key
		}
		if r.key != want {
			b.fail("%s has the key %q, not %q: %+v", id, r.key, want, r)
		}
		if other := keys[r.key]; r.key != "" && other != "" {
			b.fail("%s and %s have the key %q", id, other, r.key)
		}
		keys[r.key] = id
	}
}

// taken tells whether a job has the key, before the step.
func (b *table) taken(key string) bool {
	for _, r := range b.rows {
		if r.key == key {
			return key != ""
		}
	}
	return false
}

func (b *table) fail(format string, args ...any) {
	b.t.Helper()
	b.t.Fatalf(format+"\n\n%s", append(args, strings.Join(b.history, "\n"))...)
}

func (b *table) rowOf(rows map[string]jobState, id string) jobState {
	if r, ok := rows[id]; ok {
		return r
	}
	return jobState{phase: absent}
}

// explains tells whether some order of the moves leads from one row to the other.
func explains(effects []effect, was, is jobState, old bool) bool {
	if len(effects) == 0 {
		was.key, is.key = "", "" // these are checked by themselves
		return was == is || old && was.phase == ended && is.phase == absent
	}
	for i, e := range effects {
		rest := slices.Delete(slices.Clone(effects), i, i+1)
		for _, next := range e.apply(was) {
			if explains(rest, next, is, old) {
				return true
			}
		}
	}
	return false
}

// read returns all rows.
func (b *table) read() map[string]jobState {
	rows, err := b.pool.Query(b.t.Context(), "select split_part(id, '.', 2), state, coalesce(holder, 0), claim, version, coalesce(key, '') from "+b.s.schema+".job")
	require.NoError(b.t, err)
	all := map[string]jobState{}
	var id string
	var r jobState
	_, err = pgx.ForEachRow(rows, []any{&id, &r.phase, &r.holder, &r.claim, &r.version, &r.key}, func() error {
		if r.phase != runs {
			r.holder = 0 // who has it in hand does not matter
		}
		all[id] = r
		return nil
	})
	require.NoError(b.t, err)
	return all
}

// answerOf gives a call's error a short name.
func answerOf(err error, ok string) string {
	switch {
	case err == nil:
		return ok
	case errors.Is(err, driver.ErrUncertain):
		return "uncertain"
	case errors.Is(err, driver.ErrExists):
		return "exists"
	case errors.Is(err, driver.ErrNotFound):
		return "not found"
	case errors.Is(err, driver.ErrLeaseLost):
		return "lease lost"
	}
	return err.Error()
}
