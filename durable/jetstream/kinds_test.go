package jetstream

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
	"github.com/tickwheel/tickwheel/durable/testservers/busy"
)

// soon is small buckets, that close while a test runs.
var soon = WithBuckets(Buckets{Near: 250 * time.Millisecond, Far: 2 * time.Second, Lead: time.Second, Settle: time.Second})

// runs has a Queue on the engine of a partition run kinds.
func runs(t *testing.T, p *part, kinds ...string) (*durable.Queue, <-chan *durable.Attempt) {
	e := connectPartTo(t, p)
	q, err := durable.Open(t.Context(), e, durable.WithLease(busy.Longer(3*time.Second)))
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
func connectPartTo(t *testing.T, p *part) driver.Engine {
	e, err := Connect(t.Context(), p.Conn.NC)
	require.NoError(t, err)
	return e
}

// eventuallyNone waits until no subject fits a filter, as long as they become fewer.
func eventuallyNone(t *testing.T, p *part, filters ...string) {
	t.Helper()
	for _, filter := range filters {
		left := math.MaxInt
		for end := time.Now().Add(2 * time.Minute); left > 0; time.Sleep(50 * time.Millisecond) {
			info, err := p.Info(t.Context(), p.subject(filter))
			if n := len(info.Subjects); err == nil && n < left {
				left, end = n, time.Now().Add(2*time.Minute)
			}
			require.True(t, time.Now().Before(end), "%d of %s: %v", left, filter, err)
		}
	}
}

// Kinds that the same workers can run share a queue, and one that has a limit anywhere has its
// own, in whatever order the heartbeats are read.
func TestFleet(t *testing.T) {
	of := func(lives ...life) (all [][]string) {
		fl := fleetOf(lives)
		for queue, hashes := range fl.shared {
			require.False(t, isOneKind(queue))
			all = append(all, hashes)
		}
		for hash, queue := range fl.queues {
			if hash == queue {
				all = append(all, []string{hash + "!"})
			}
			require.False(t, fl.isNobodys(queue))
		}
		return all
	}
	abc := life{Kinds: []string{"a", "b", "c"}}
	require.Equal(t, [][]string{{"a", "b", "c"}}, of(abc, abc))
	require.Empty(t, of())
	bd := life{Kinds: []string{"b", "d"}}
	require.ElementsMatch(t, [][]string{{"a", "c"}, {"b"}, {"d"}}, of(abc, bd))
	require.Equal(t, fleetOf([]life{abc, bd}).queues, fleetOf([]life{bd, abc, bd}).queues)
	abc.Apart = []string{"c"}
	require.ElementsMatch(t, [][]string{{"a"}, {"c!"}, {"b"}, {"d"}}, of(abc, bd))
	require.ElementsMatch(t, [][]string{{"a", "b"}, {"c!"}}, of(abc, life{Kinds: abc.Kinds}))

	var unknown *fleet
	require.Equal(t, anyQueue, unknown.queueOf("k"))
	require.Equal(t, anyQueue, fleetOf(nil).queueOf("k"))
	fl := fleetOf([]life{{Kinds: []string{hashOf("k")}}})
	require.Equal(t, "_"+hashOf(hashOf("k")), fl.queueOf("k"))
	require.Equal(t, hashOf("nobody's"), fl.queueOf("nobody's"))
	require.True(t, fl.isNobodys(hashOf("nobody's")))
	require.False(t, fl.isNobodys(anyQueue))
	require.False(t, fl.isNobodys("_of others"))
}

// Heartbeats that are confirmed again and again are not read, and their queues stay. Those of a stream that went back are
// read, whatever was confirmed since.
func TestConfirmedFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &buckets{Stream: &stream.Stream{}}
		q := newQueues(b)
		q.confirm()
		require.True(t, q.fleet.Load().isOld(), "they were never read")
		q.fleet.Store(fleetOf([]life{{Kinds: []string{hashOf("k")}}}))
		queue := q.nearSubject(1, "k")
		for range 3 {
			time.Sleep(4 * time.Second)
			require.False(t, q.fleet.Load().isOld())
			q.confirm()
		}
		time.Sleep(6 * time.Second)
		require.True(t, q.fleet.Load().isOld())
		q.confirm()
		require.False(t, q.fleet.Load().isOld())
		for _, drop := range b.Drop {
			drop()
		}
		q.confirm()
		require.True(t, q.fleet.Load().isOld())
		require.Equal(t, queue, q.nearSubject(1, "k"))
	})
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
		require.Eventually(t, func() bool {
			info, err := p.Info(t.Context(), p.subject("q.>"))
			return err == nil && len(info.Subjects) == 1
		}, 2*time.Minute, 50*time.Millisecond)
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

// Of many kinds, however narrow the buckets are, all run, and the buckets close. They have one
// subject and one consumer.
func TestManyKinds(t *testing.T) {
	p := newPart(t, soon)
	kinds := make([]string, 150)
	jobs := make([]durable.Job, len(kinds))
	for i := range kinds {
		kinds[i] = fmt.Sprint("kind", i)
		jobs[i] = durable.Job{Kind: kinds[i]}
	}
	q, ran := runs(t, p, kinds...)
	for range 3 {
		_, err := q.AddMany(t.Context(), jobs...)
		require.NoError(t, err)
		info, err := p.Info(t.Context(), p.subject("q.>"))
		require.NoError(t, err)
		require.LessOrEqual(t, len(info.Subjects), 8, "those of a few buckets")
		for range jobs {
			<-ran
		}
	}
	eventuallyNone(t, p, "q.>", "c.>", "p.>")
}

// What was stored while no worker was known, or by who knew of others, comes to those who can
// run it: a worker that is handed it and cannot, stores it where they look. Nothing of it is
// handed to the others again and again, or keeps a bucket open.
func TestSetAside(t *testing.T) {
	p := newPart(t, soon)
	now := p.Now().Truncate(time.Microsecond)
	var ofA, ofB, nobodys []durable.Ref
	for i := range 60 {
		r := recordAt(fmt.Sprint("job", i), now, now)
		r.Kind = []string{"a", "b", "nobody's"}[i%3]
		refs := []*[]durable.Ref{&ofA, &ofB, &nobodys}[i%3]
		*refs = append(*refs, p.refOf(&r))
		queue := []string{anyQueue, "_gone"}[i%2]
		require.NoError(t, p.Write(t.Context(), stream.Write{Subject: p.queueSubject(p.nearOf(now), queue), Data: encode(&r, nil)}))
	}
	a, ranA := runs(t, p, "a")
	_, ranB := runs(t, p, "b")
	ran := func(from <-chan *durable.Attempt, n int) (refs []durable.Ref) {
		for range n {
			refs = append(refs, (<-from).Ref)
		}
		return refs
	}
	require.ElementsMatch(t, ofA, ran(ranA, len(ofA)))
	require.ElementsMatch(t, ofB, ran(ranB, len(ofB)))
	require.Eventually(t, func() bool { // what is nobody's is alone
		info, err := p.Info(t.Context(), p.subject("q.>"))
		return err == nil && len(info.Subjects) == 1 && info.Subjects[p.queueSubject(p.nearOf(now), hashOf("nobody's"))] == uint64(len(nobodys))
	}, 2*time.Minute, 50*time.Millisecond)
	var listed []durable.Ref
	for info, err := range a.All(t.Context(), durable.Filter{}) {
		require.NoError(t, err)
		listed = append(listed, info.Ref)
	}
	require.ElementsMatch(t, nobodys, listed)
	_, ranLast := runs(t, p, "nobody's")
	require.ElementsMatch(t, nobodys, ran(ranLast, len(nobodys)))
	eventuallyNone(t, p, "q.>", "c.>", "p.>")
	require.Empty(t, ranA)
	require.Empty(t, ranB)
}

// The shared queues come first, whether a kind's hash begins with a digit or a letter: a worker with many
// queues attends only the first ones.
func TestOwnQueuesBeginWithTheSharedOnes(t *testing.T) {
	tk := &taking{queues: &queues{}, kinds: map[string][]string{}}
	fl := fleetOf(nil)
	for i := range 50 {
		kind := hashOf(fmt.Sprint(i))
		tk.kinds[kind] = []string{fmt.Sprint(i)}
		if i%2 == 0 {
			fl.queues[kind] = "_" + kind
		}
	}
	tk.queues.fleet.Store(fl)
	own := tk.own()
	require.Len(t, own, 50)
	for _, queue := range own[:25] {
		require.False(t, isOneKind(queue), own)
	}
	require.IsIncreasing(t, own[:25])
	require.IsIncreasing(t, own[25:])
}

// A bucket is not closed while a job is set aside in it: a look that was taken before that has
// seen only the queue where the job is done with.
func TestSetAsideWhileItCloses(t *testing.T) {
	p := newPart(t, soon)
	e := connectPartTo(t, p)
	w, err := e.Work(t.Context(), driver.WorkConfig{Name: "w", Lease: time.Minute, Kinds: driver.NewKindSet([]string{"a"})})
	require.NoError(t, err)
	f := newFetcher(e.(*engine).parts[0], w.(*worker), func([]*driver.Delivery) {})
	f.taking.kinds, f.ctx = f.w.kindsBy(), t.Context()
	for queue, others := range map[string][]life{anyQueue: nil, "_gone": {{Kinds: []string{hashOf("b")}}}} {
		lives := append(others, life{Kinds: []string{hashOf("a")}})
		f.part.queues.fleet.Store(fleetOf(lives))
		now := p.Now().Truncate(time.Microsecond)
		r := recordAt("job"+queue, now, now)
		r.Kind = "b"
		b := p.nearOf(now)
		at := spot{b, queue}
		require.NoError(t, p.Write(t.Context(), stream.Write{Subject: p.queueSubject(b, queue), Data: encode(&r, nil)}))
		had, err := f.contents(t.Context(), "q.>")
		require.NoError(t, err)
		got, err := f.fetchOf(t.Context(), f.w.read, firstTurn, at, &reader{}, stream.PullRequest{MaxBytes: readSize, NoWait: true})
		require.NoError(t, err)
		require.Equal(t, 1, got)
		require.Eventually(t, func() bool {
			last, err := f.emptied(t.Context(), at.consumer())
			return err == nil && last > 0
		}, 2*time.Minute, 10*time.Millisecond, "the job is acknowledged where it was")
		require.NoError(t, f.closer.closeNear(t.Context(), b, had[b]))
		mark, err := p.Last(t.Context(), p.nearMark(b))
		require.NoError(t, err)
		require.Zero(t, mark.Seq, "the bucket has a job that waits")
		had, err = f.contents(t.Context(), "q."+itoa(b)+".*")
		require.NoError(t, err)
		require.Contains(t, had[b], f.part.queues.fleet.Load().queueOf("b"))
	}
}

// What a Fetch leaves on the server when it ends goes by itself, soon for small buckets: a Fetch
// that fails again and again must not fill the server with consumers.
func TestConsumersGo(t *testing.T) {
	t.Parallel()
	p := newPart(t, soon)
	consumers := func() int {
		s, err := p.Conn.NC.JetStream()
		require.NoError(t, err)
		info, err := s.StreamInfo(p.Name)
		require.NoError(t, err)
		return info.State.Consumers
	}
	e := connectPartTo(t, p)
	w, err := e.Work(t.Context(), driver.WorkConfig{Name: "w", Lease: time.Minute, Kinds: driver.NewKindSet([]string{"a"})})
	require.NoError(t, err)
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		fetched := make(chan error, 1)
		go func() { fetched <- w.Fetch(ctx, func([]*driver.Delivery) {}) }()
		time.Sleep(time.Second)
		require.Eventually(t, func() bool { return consumers() > 0 }, 2*time.Minute, 10*time.Millisecond)
		cancel()
		require.NoError(t, <-fetched)
	}
	require.Eventually(t, func() bool { return consumers() == 0 }, 5*time.Minute, time.Second)
}

// While a worker's own heartbeat is old, nobody says which kinds no worker handles: the server that answers may
// be behind, and those of all others be old as well.
func TestUnhandledWithoutOwnHeartbeat(t *testing.T) {
	t.Parallel()
	p := newPart(t)
	now := p.Now()
	require.NoError(t, p.insertOne(t.Context(), recordAt("x", now.Add(-time.Second), now))) // the next reading of the clock may put it back a little
	e := newEngine("default", []*part{p}, nil)
	w := newWorker(e, driver.WorkConfig{Name: "w", Lease: time.Minute})
	unhandled := func() int {
		all, err := e.Unhandled(t.Context())
		require.NoError(t, err)
		return len(all)
	}
	require.Equal(t, 1, unhandled(), "there is no worker")
	e.notices.listeners = append(e.notices.listeners, &listener{name: "w"})
	_, err := e.Unhandled(t.Context())
	require.ErrorIs(t, err, stream.ErrBehind)
	require.NoError(t, w.Heartbeat(t.Context()))
	require.Equal(t, 1, unhandled(), "it has another kind")
}
