package postgres_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

// addJob calls add_job with all that a job has.
func (s *store) addJob(t testing.TB, pool *pgxpool.Pool, j durable.Job) (durable.Ref, error) {
	var meta, due, expires, timeout any
	if j.Meta != nil {
		text, err := json.Marshal(j.Meta)
		require.NoError(t, err)
		meta = string(text)
	}
	if !j.At.IsZero() {
		due = j.At
	}
	if !j.Expires.IsZero() {
		expires = j.Expires
	}
	if j.Timeout != 0 {
		timeout = j.Timeout
	}
	var ref *string
	err := pool.QueryRow(t.Context(), "select "+s.schema+".add_job($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, retain => $11, retain_payload => $12)",
		j.Kind, j.Payload, due, j.Key, j.Lane, int(j.Priority), meta, j.MaxAttempts, timeout, expires, j.Retain, j.RetainPayload).Scan(&ref)
	if ref == nil {
		return "", err
	}
	return durable.Ref(*ref), err
}

// row is what is stored of a job, but for its identity and its age.
func (s *store) row(t testing.TB, pool *pgxpool.Pool, ref durable.Ref) (row string) {
	id := string(ref[:strings.LastIndexByte(string(ref), '.')])
	require.NoError(t, pool.QueryRow(t.Context(), "select to_jsonb(j) - 'id' - 'born' - 'key' - 'given_key' - 'ord' from "+
		s.schema+".job j where id = $1", id).Scan(&row))
	return row
}

// The function stores what AddTx does, and its Ref is one: what it has added is announced,
// runs, and can be canceled. Null is what is left out, and what another job's key makes of it.
func TestAddJob(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e, pool := s.open(t), s.pool(t)
	due := time.Date(2100, 1, 2, 3, 4, 5, 678901000, time.UTC)
	for _, j := range []durable.Job{{Kind: "k", At: due}, full(due), {Kind: "k", At: due, Meta: map[string]string{}}} {
		ref, err := s.addJob(t, pool, j)
		require.NoError(t, err)
		info, err := e.Get(t.Context(), ref)
		require.NoError(t, err)
		require.Equal(t, j.Key, info.Job.Key)
		second := j
		second.Key = ""
		require.Equal(t, s.row(t, pool, s.add(t, e, pool, second)), s.row(t, pool, ref))
		if j.Key != "" {
			ref, err = s.addJob(t, pool, j)
			require.NoError(t, err)
			require.Empty(t, ref)
		}
	}
	var ref durable.Ref
	announced := s.listen(t)
	require.NoError(t, pool.QueryRow(t.Context(), "select "+s.schema+".add_job('now')").Scan(&ref))
	announced()
	info, err := e.Get(t.Context(), ref)
	require.NoError(t, err)
	require.Equal(t, []any{"now", "", 25}, []any{info.Job.Kind, string(info.Job.Payload), info.Job.MaxAttempts})
	c := consume(t, s.open(t))
	require.NoError(t, pool.QueryRow(t.Context(), "select "+s.schema+".add_job('k', due => '-infinity')").Scan(&ref))
	c.began(t, ref)
	require.NoError(t, pool.QueryRow(t.Context(), "select "+s.schema+".add_job(kind => 'k', due => now() + interval '1 hour')").Scan(&ref))
	ok, err := c.Cancel(t.Context(), ref)
	require.NoError(t, err)
	require.True(t, ok)
}

// A trigger adds jobs with the rows that they are about, which are there if and only if
// these are.
func TestAddJobByTrigger(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e, pool := s.open(t), s.pool(t)
	s.exec(t, pool, "create table SCHEMA.orders (id int primary key)")
	s.exec(t, pool, `create function SCHEMA.remind() returns trigger language plpgsql as $$
		begin
			perform SCHEMA.add_job('k', convert_to(to_jsonb(new)::text, 'UTF8'));
			return new;
		end $$`)
	s.exec(t, pool, "create trigger remind after insert on SCHEMA.orders for each row execute function SCHEMA.remind()")
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "insert into "+s.schema+".orders values (0)")
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(t.Context()))
	s.exec(t, pool, "insert into SCHEMA.orders select generate_series(1, 100)")
	seen := map[string]int{}
	for info, err := range e.Scan(t.Context(), driver.Filter{Kind: "k"}) {
		require.NoError(t, err)
		seen[string(info.Job.Payload)]++
	}
	require.Len(t, seen, 100)
	require.Equal(t, 1, seen[`{"id": 100}`])
}

// The function refuses what durable refuses, and takes what durable takes.
func TestAddJobChecks(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	s.open(t)
	pool := s.pool(t)
	long := func(n int) string { return strings.Repeat("ü", n/2) + strings.Repeat("x", n%2) }
	far := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	for _, j := range []durable.Job{
		{}, {Kind: long(128)}, {Kind: long(129)}, {Kind: "a\nb"}, {Kind: "a\u00a0b"}, {Kind: "a b"}, {Kind: "\U0010ffff"},
		{Kind: "k", Key: long(256)}, {Kind: "k", Key: long(257)}, {Kind: "k", Key: "\t"}, {Kind: "k", Key: "every/x"}, {Kind: "k", Key: "every"},
		{Kind: "k", Lane: long(128)}, {Kind: "k", Lane: long(129)}, {Kind: "k", Lane: "\u200b"},
		{Kind: "k", Payload: make([]byte, durable.MaxPayload)}, {Kind: "k", Payload: make([]byte, durable.MaxPayload+1)},
		{Kind: "k", MaxAttempts: -1}, {Kind: "k", MaxAttempts: 1}, {Kind: "k", Priority: 2}, {Kind: "k", Priority: -2}, {Kind: "k", Priority: -1},
		{Kind: "k", Timeout: -1 * time.Microsecond}, {Kind: "k", Timeout: 90 * time.Hour},
		{Kind: "k", Retain: -time.Microsecond}, {Kind: "k", Retain: 36500 * 24 * time.Hour}, {Kind: "k", Retain: 36500*24*time.Hour + time.Second},
		{Kind: "k", RetainPayload: true}, {Kind: "k", Retain: time.Hour, RetainPayload: true},
		{Kind: "k", At: far}, {Kind: "k", At: far.Add(time.Second)}, {Kind: "k", At: time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)},
		{Kind: "k", At: far.Add(-time.Hour), Expires: far}, {Kind: "k", At: far, Expires: far}, {Kind: "k", At: far, Expires: far.Add(time.Second)},
		{Kind: "k", Expires: time.Unix(1, 0)}, {Kind: "k", At: time.Unix(1, 0), Expires: time.Unix(2, 0)},
		{Kind: "k", Meta: map[string]string{"": "x"}}, {Kind: "k", Meta: map[string]string{"a\n": "x"}}, {Kind: "k", Meta: map[string]string{"a": "\n\"ü"}},
		{Kind: "k", Meta: map[string]string{long(128): "x"}}, {Kind: "k", Meta: map[string]string{long(129): "x"}},
		{Kind: "k", Meta: map[string]string{"ab": long(4094)}}, {Kind: "k", Meta: map[string]string{"ab": long(2047), "cd": long(2048)}},
	} {
		_, bad := driver.NewRecord(j, time.Now())
		_, err := s.addJob(t, pool, j)
		if bad == nil {
			require.NoError(t, err, "%.200v", j)
			continue
		}
		require.ErrorContains(t, err, "SQLSTATE 22023", "%.200v", j)
		if !strings.ContainsAny(bad.Error(), `"`) && j.At.IsZero() && j.Expires.IsZero() { // no values, which look different
			bare := func(text string) string { return strings.ToLower(strings.TrimPrefix(text, "durable: invalid: ")) }
			require.ErrorContains(t, lower{err}, strings.NewReplacer("maxattempts", "max_attempts", "retainpayload", "retain_payload", "-1µs", "-00:00:00.000001", "876000h0m1s", "876000:00:01", "a hundred years", "36500 days", "priority 2 is not from -1 to 1", "there is no priority 2", "priority -2 is not from -1 to 1", "there is no priority -2").Replace(bare(bad.Error())))
		}
	}
	for _, args := range []string{
		"'k', meta => '[]'", `'k', meta => '"x"'`, `'k', meta => '{"a": 1}'`, `'k', meta => '{"a": null}'`, "'k', due => 'infinity'",
		"'k', expires => 'infinity'", "'k', timeout => '300 years'", "'k', timeout => '296 years'", "'k', retain => '100 years'", "'k', retain_payload => true, retain => '0'", "null",
	} {
		_, err := pool.Exec(t.Context(), "select "+s.schema+".add_job("+args+")")
		require.ErrorContains(t, err, "SQLSTATE 22023", args)
	}
}

type lower struct{ error }

func (e lower) Error() string { return strings.ToLower(e.error.Error()) }

// The function's table of what is printable is that of Go, as far as their versions of
// Unicode agree: what a newer one has made of nothing is refused.
func TestAddJobPrintable(t *testing.T) {
	t.Parallel()
	var text string
	for n := 1; !strings.Contains(text, "add_job("); n++ {
		migration, err := os.ReadFile(fmt.Sprintf("sql/%d.sql", n))
		require.NoError(t, err)
		text = string(migration)
	}
	var stored []int
	for _, n := range strings.FieldsFunc(regexp.MustCompile(`(?s)ascii\(c\), '\{(.*?)\}'`).FindStringSubmatch(text)[1], func(r rune) bool { return r == ',' || r == '\n' || r == ' ' }) {
		v, err := strconv.Atoi(n)
		require.NoError(t, err)
		stored = append(stored, v)
	}
	s := sharedStore(t)
	s.open(t)
	pool := s.pool(t)
	printable := func(r rune) (is bool) {
		require.NoError(t, pool.QueryRow(t.Context(), "select "+s.schema+".printable($1)", "a"+string(r)+"b").Scan(&is))
		return is
	}
	next, in := 0, false
	for r := rune(1); r <= unicode.MaxRune; r++ {
		change := next < len(stored) && stored[next] == int(r)
		if change {
			next++
			in = !in
		}
		switch {
		case in && !unicode.IsPrint(r), !in && unicode.IsPrint(r) && unicode.Version == "15.0.0":
			t.Fatalf("%U: %v", r, in)
		case change && rand.N(10) == 0 || rand.N(10_000) == 0:
			if r < 0xd800 || r > 0xdfff {
				require.Equal(t, in, printable(r), "%U", r)
			}
		}
	}
	require.Equal(t, len(stored), next)
	require.True(t, printable('x'))
}

// Of many calls that replace the waiting job of one key at the same time, beside others that push it back and signal it,
// none is refused: nobody claims it.
func TestAddJobReplacedByMany(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e := s.open(t)
	pool, err := pgxpool.New(t.Context(), s.srv.DSN()+"&pool_max_conns=30")
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	var all sync.WaitGroup
	for n := range 30 {
		all.Go(func() {
			for range 40 {
				var ref *string
				sql := fmt.Sprintf("select %s.add_job('k', key => 'k', due => now() + interval '1 hour', on_key => '%s')", s.schema, []string{"replace", "later"}[n%2])
				if assert.NoError(t, pool.QueryRow(t.Context(), sql).Scan(&ref)) {
					assert.NotNil(t, ref)
				}
				if n == 0 {
					_, errs := e.Insert(t.Context(), []driver.Record{replacing(t, e)})
					assert.NoError(t, errs[0])
				}
			}
		})
	}
	all.Wait()
}

func replacing(t *testing.T, e *postgres.Engine) driver.Record {
	now, _, err := e.Now(t.Context())
	require.NoError(t, err)
	r, err := driver.NewRecord(durable.Job{Kind: "k", Key: "k", OnKey: durable.Replace, After: time.Hour}, now)
	require.NoError(t, err)
	return r
}

// A job of RunNow that a Middleware gave a key is none of its schedule any more, once add_job has gone into it.
func TestAddJobGoesIntoOneOfASchedule(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	pool := s.pool(t)
	q, err := durable.Open(t.Context(), s.open(t))
	require.NoError(t, err)
	defer q.Close()
	ref, err := q.Add(t.Context(), durable.Job{Kind: "k", Key: "k"})
	require.NoError(t, err)
	s.exec(t, pool, "update SCHEMA.job set schedule = 's'")
	var got durable.Ref
	require.NoError(t, pool.QueryRow(t.Context(), "select "+s.schema+".add_job('l', key => 'k', on_key => 'replace')").Scan(&got))
	require.Equal(t, ref, got)
	require.Zero(t, s.exec(t, pool, "select from SCHEMA.job where schedule <> ''"))
}
