package jetstream

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
)

// soon is small buckets, that close while a test runs.
var soon = Buckets(250*time.Millisecond, 2*time.Second, time.Second, time.Second)

// runs has a Queue on the engine of a partition run kinds.
func runs(t *testing.T, p *part, kinds ...string) (*durable.Queue, <-chan *durable.Attempt) {
	e := connectPartTo(t, p)
	q, err := durable.Open(t.Context(), e, durable.WithLease(3*time.Second))
	require.NoError(t, err)
	ran := make(chan *durable.Attempt, 1000)
	for _, kind := range kinds {
		q.Handle(kind, func(_ context.Context, a *durable.Attempt) error { ran <- a; return nil })
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		q.Close()
	})
	return q, ran
}

// connectPartTo returns another engine on the queue of a partition.
func connectPartTo(t *testing.T, p *part) durable.Engine {
	e, err := Connect(t.Context(), p.nc.nc)
	require.NoError(t, err)
	return e
}

// eventually waits until a question has no answers.
func eventuallyNone(t *testing.T, p *part, filters ...string) {
	t.Helper()
	for _, filter := range filters {
		require.Eventually(t, func() bool {
			info, err := p.info(t.Context(), p.subject(filter))
			return err == nil && len(info.subjects) == 0
		}, 2*time.Minute, 50*time.Millisecond, filter)
	}
}

// Kinds that the same workers can run are together, and one that has a limit anywhere is
// alone, in whatever order the beats are read.
func TestBunches(t *testing.T) {
	of := func(lives ...life) (all [][]string) {
		for _, b := range bunchesOf(lives) {
			all = append(all, b.tokens)
		}
		return all
	}
	abc := life{Kinds: []string{"a", "b", "c"}}
	require.Equal(t, [][]string{{"a", "b", "c"}}, of(abc, abc))
	require.Empty(t, of())
	bd := life{Kinds: []string{"b", "d"}}
	require.ElementsMatch(t, [][]string{{"a", "c"}, {"b"}, {"d"}}, of(abc, bd))
	require.Equal(t, of(abc, bd), of(bd, abc, bd))
	abc.Apart = []string{"c"}
	require.ElementsMatch(t, [][]string{{"a"}, {"c"}, {"b"}, {"d"}}, of(abc, bd))
	require.ElementsMatch(t, [][]string{{"a", "b"}, {"c"}}, of(abc, life{Kinds: abc.Kinds}))
	abcd := life{Kinds: []string{"a", "b", "c", "d"}, Apart: []string{"c"}, Rest: []string{"a", "b"}}
	require.ElementsMatch(t, [][]string{{"a", "b"}, {"c"}, {"d"}}, of(abcd), "what is too much is apart from the others")
	require.ElementsMatch(t, [][]string{{"a"}, {"b"}, {"c"}, {"d"}}, of(abcd, bd))

	b := &bunch{tokens: []string{"a", "b"}}
	for _, c := range []struct {
		tokens []string
		in     bool
	}{{nil, false}, {[]string{"a"}, true}, {[]string{"c"}, false}, {[]string{"a", "c", "d"}, true}, {[]string{""}, false}} {
		messages := map[string]uint64{}
		for _, t := range c.tokens {
			messages[t] = 1
		}
		require.Equal(t, c.in, b.in(messages), c.tokens)
	}
	require.True(t, old.in(map[string]uint64{"": 1, "a": 1}))
	require.False(t, old.in(map[string]uint64{"a": 1}))
}

// What version 2 has stored, without a kind in the subject, can be asked for and canceled,
// and runs with who can run it, also from a far bucket; then its buckets close.
func TestStoredWithoutAKind(t *testing.T) {
	t.Parallel() // it waits for minutes: what has no kind is handed to any worker, again and again
	p := newPart(t, soon)
	now := p.now().Truncate(time.Microsecond)
	stored := func(id, kind string, due time.Time, far bool) durable.Ref {
		r := recordAt(id, due, now)
		r.Job.Kind = kind
		w := write{subject: p.nearToken(p.nearOf(due), ""), data: encode(&r)}
		if far {
			w.subject = p.farSubject(p.farOf(p.nearOf(due)))
		}
		require.NoError(t, p.write(t.Context(), w))
		return p.refOf(&r)
	}
	refs := []durable.Ref{
		stored("a", "k", now, false), stored("b", "other", now, false), stored("c", "k", now.Add(4*time.Second), true),
		stored("d", "k", now.Add(time.Second), false), stored("e", "nobody's", now, false),
	}
	k, ranK := runs(t, p, "k")
	ok, err := k.Cancel(t.Context(), refs[3])
	require.NoError(t, err)
	require.True(t, ok)
	_, ranOther := runs(t, p, "other")
	require.Equal(t, refs[1], (<-ranOther).Ref)
	require.ElementsMatch(t, []durable.Ref{refs[0], refs[2]}, []durable.Ref{(<-ranK).Ref, (<-ranK).Ref})
	info, err := k.Get(t.Context(), refs[4])
	require.NoError(t, err)
	require.Equal(t, durable.Waiting, info.State)
	require.Eventually(t, func() bool {
		u := k.Stats().Unhandled
		return len(u) == 1 && u[0].Kind == "nobody's" && u[0].Oldest == refs[4]
	}, 2*time.Minute, 50*time.Millisecond)
	_, ranLast := runs(t, p, "nobody's")
	require.Equal(t, refs[4], (<-ranLast).Ref)
	eventuallyNone(t, p, "q.>", "h.>", "c.>", "p.>")
	require.Empty(t, ranK)
	require.Empty(t, ranOther)
}

// A bucket in which something waits that nobody can run stays open, but nothing else is left
// of its jobs, and nobody reads it. When what waited has ended, in whatever way, it closes.
func TestBucketWithWhatNobodyCanRun(t *testing.T) {
	for _, canceled := range []bool{true, false} {
		p := newPart(t, soon)
		q, ran := runs(t, p, "k", "l")
		waiting, err := q.Add(t.Context(), durable.Job{Kind: "nobody's"})
		require.NoError(t, err)
		for range 20 {
			_, err := q.AddMany(t.Context(), durable.Job{Kind: "k"}, durable.Job{Kind: "l"})
			require.NoError(t, err)
		}
		for range 40 {
			<-ran
		}
		eventuallyNone(t, p, "q.*."+tokenOf("k"), "q.*."+tokenOf("l"))
		info, err := p.info(t.Context(), p.subject("q.>"))
		require.NoError(t, err)
		require.Len(t, info.subjects, 1)
		if canceled {
			ok, err := q.Cancel(t.Context(), waiting)
			require.NoError(t, err)
			require.True(t, ok)
		}
		_, ranLast := runs(t, p, "nobody's")
		if !canceled {
			require.Equal(t, waiting, (<-ranLast).Ref)
		}
		eventuallyNone(t, p, "q.>", "c.>", "p.>")
		require.Empty(t, ranLast)
	}
}

// What was canceled of a kind that nobody can run does not keep its bucket open, and gives
// its key back.
func TestCanceledOfWhatNobodyCanRun(t *testing.T) {
	p := newPart(t, soon)
	q, _ := runs(t, p, "k")
	refs, err := q.AddMany(t.Context(), durable.Job{Kind: "nobody's", Key: "key"}, durable.Job{Kind: "nobody's"})
	require.NoError(t, err)
	for _, ref := range refs {
		ok, err := q.Cancel(t.Context(), ref)
		require.NoError(t, err)
		require.True(t, ok)
	}
	eventuallyNone(t, p, "q.>", "c.>", "p.>")
	require.Empty(t, q.Stats().Unhandled)
}

// Buckets with many kinds close, and one that comes while they do stays.
func TestManyKinds(t *testing.T) {
	p := newPart(t, soon)
	kinds := make([]string, 3*maxTokens)
	jobs := make([]durable.Job, len(kinds))
	for i := range kinds {
		kinds[i] = fmt.Sprint("kind", i)
		jobs[i] = durable.Job{Kind: kinds[i]}
	}
	q, ran := runs(t, p, kinds...)
	_, err := q.AddMany(t.Context(), jobs...)
	require.NoError(t, err)
	for range jobs {
		<-ran
	}
	eventuallyNone(t, p, "q.>", "c.>", "p.>")

	b := p.nearOf(p.now())
	f := &feed{part: p}
	mine := &bunch{tokens: []string{"a", "b", "c", "d", "e"}}
	had := map[string]uint64{}
	for _, token := range mine.tokens {
		require.NoError(t, p.write(t.Context(), write{subject: p.nearToken(b, token)}))
		had[token] = 1
	}
	require.NoError(t, p.write(t.Context(), write{subject: p.nearToken(b, "other")}))
	last := p.commit(t.Context(), []group{{{subject: p.nearToken(b, "a")}}})[0].first
	require.NoError(t, f.purgeEnded(t.Context(), b, had, map[*bunch]uint64{mine: last}))
	found, err := p.contents(t.Context(), "q.>")
	require.NoError(t, err)
	require.Equal(t, map[string]uint64{"other": 1}, found[b], "what came after the look is not removed")
}
