package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream"
	"github.com/tickwheel/tickwheel/durable/testservers/busy"
)

// serverClock is the clock of a server, or those of several, which a test sets.
type serverClock struct {
	mu      sync.Mutex
	history []setting
	servers map[string]time.Duration // how far each is ahead; nil: as was set last
}

// setting is from when on the clock is ahead, and by how much.
type setting struct {
	from time.Time
	by   time.Duration
}

func (c *serverClock) set(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history = append(c.history, setting{time.Now(), by})
}

// show is what the clock of a server shows, or has shown when a message was written.
func (c *serverClock) show(server string, t time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if by, ok := c.servers[server]; ok {
		if n := len(c.history); n == 0 || c.history[n-1].by != by {
			c.history = append(c.history, setting{time.Now(), by})
		}
		return t.Add(by)
	}
	by := time.Duration(0)
	for _, s := range c.history {
		if s.from.After(t) {
			break
		}
		by = s.by
	}
	return t.Add(by)
}

func (c *serverClock) now() time.Time { return c.show("", time.Now()) }

// book keeps account of what was accepted and what ran.
type book struct {
	t     *testing.T
	clock *serverClock
	early time.Duration // that is allowed

	mu       sync.Mutex
	accepted map[durable.Ref]bool // false: it was canceled
	begun    map[durable.Ref]int
	done     map[durable.Ref]int
	unsure   int // jobs whose Add was uncertain: each may run
	quick    int // of these, how many it left uncertain at once
	occurred int // jobs of a schedule; they are accepted as they begin
}

func newBook(t *testing.T, c *serverClock) *book {
	return &book{t: t, clock: c, accepted: map[durable.Ref]bool{}, begun: map[durable.Ref]int{}, done: map[durable.Ref]int{}}
}

// open returns a Queue whose handler writes the book. A job of the kind "retried" fails
// once, one of the kind "dying" always.
func (b *book) open(e driver.Engine, retry time.Duration, opts ...durable.Option) *durable.Queue {
	q, err := durable.Open(within(b.t), e, append([]durable.Option{durable.WithLease(busy.Longer(5 * time.Second))}, opts...)...)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { q.Close() })
	run := func(_ context.Context, a *durable.Attempt) error {
		now := b.clock.now()
		b.mu.Lock()
		defer b.mu.Unlock()
		if now.Add(b.early).Before(a.Due) {
			b.t.Errorf("%s of kind %s is %v early", a.Ref, a.Job.Kind, a.Due.Sub(now))
		}
		b.begun[a.Ref]++
		if a.Schedule != "" {
			b.accepted[a.Ref] = true
			b.occurred++
		}
		switch {
		case a.Job.Kind == "retried" && a.Number == 1:
			return durable.RetryAfter(retry, errors.New("once"))
		case a.Job.Kind == "dying" && b.begun[a.Ref] == 1:
			return durable.Discard(errors.New("dead"))
		}
		b.done[a.Ref]++
		return nil
	}
	for _, kind := range []string{"plain", "retried", "dying"} {
		q.Handle(kind, run)
	}
	return q
}

func (b *book) start(q *durable.Queue) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	b.t.Cleanup(func() { cancel(); <-done })
}

// add adds jobs. Where an answer is lost, or a small bucket was closed before a slow machine got there,
// it is uncertain whether a job is stored, and its Ref is empty.
func (b *book) add(q *durable.Queue, jobs ...durable.Job) []durable.Ref {
	b.t.Helper()
	began := time.Now()
	refs, err := q.AddMany(within(b.t), jobs...)
	took := time.Since(began)
	for _, err := range unjoin(err) {
		require.ErrorIs(b.t, err, durable.ErrUncertain)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ref := range refs {
		if ref == "" {
			b.unsure++
			if took < time.Second { // the small buckets stay open for as long
				b.quick++
			}
		} else {
			b.accepted[ref] = true
		}
	}
	return refs
}

// known adds a job until it is certain that it is stored.
func (b *book) known(q *durable.Queue, job durable.Job) (ref durable.Ref) {
	b.t.Helper()
	for ref == "" {
		ref = b.add(q, job)[0]
	}
	return ref
}

// cancel cancels a job that is due so much later. If that is not long it may be too late.
func (b *book) cancel(q *durable.Queue, ref durable.Ref, later time.Duration) {
	b.t.Helper()
	ok, err := q.Cancel(within(b.t), ref)
	require.NoError(b.t, err)
	if !ok {
		require.Less(b.t, later, time.Minute, "it waits")
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.accepted[ref] = false
}

// missing says how many of the accepted are not done, and how often the first of them has begun. It
// returns "" when all are done.
func (b *book) missing() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var left []durable.Ref
	for ref, runs := range b.accepted {
		if runs && b.done[ref] == 0 {
			left = append(left, ref)
		}
	}
	if len(left) == 0 {
		return ""
	}
	first := slices.Min(left)
	return fmt.Sprintf("%d of %d are not done; %s has begun %d times", len(left), len(b.accepted), first, b.begun[first])
}

// check waits until all that was accepted is done, and demands that it was once, and
// nothing else.
func (b *book) check() {
	b.t.Helper()
	await(b.t, b.missing)
	b.mu.Lock()
	defer b.mu.Unlock()
	others := 0
	for ref, n := range b.done {
		require.Equal(b.t, 1, n, "done twice: %s", ref)
		runs, known := b.accepted[ref]
		require.True(b.t, runs || !known, "canceled, and ran: %s", ref)
		if !known {
			others++
		}
	}
	require.LessOrEqual(b.t, others, b.unsure, "never added, and ran")
	require.Less(b.t, b.quick, len(b.accepted)/4+1, "most are certain")
}

// await waits until what returns "". It gives up when the text has not changed for as long as patience:
// a busy machine may be slow while all goes on.
func await(t testing.TB, what func() string) {
	t.Helper()
	last, since := "", time.Now()
	for text := what(); text != ""; text = what() {
		if text != last {
			last, since = text, time.Now()
		}
		if time.Since(since) > patience {
			require.FailNow(t, fmt.Sprintf("for %v: %s", patience, text))
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// awaitSteps waits until the Queue knows that the clock was set.
func awaitSteps(t *testing.T, q *durable.Queue, n int64) {
	t.Helper()
	await(t, func() string {
		if q.Stats().ClockSteps < n {
			return "the step was not noticed"
		}
		return ""
	})
}

// The server's clock is ahead while jobs run, and then it is corrected. What is added after
// that, and is due when buckets are closed already, runs, once and not early; so does
// what is moved there, fails and is tried again there, is dead and redriven there, has a
// key, or recurs; and it can be found and canceled.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	type buckets struct{ near, far, lead, settle time.Duration }
	small := buckets{250 * time.Millisecond, 2 * time.Second, time.Second, time.Second}
	narrow := buckets{time.Second, 10 * time.Second, 3 * time.Second, time.Second}
	wide := buckets{5 * time.Second, time.Hour, 10 * time.Minute, time.Second}
	for name, c := range map[string]struct {
		buckets
		by time.Duration
	}{
		"small, 6s": {small, 6 * time.Second}, "small, 2h": {small, 2 * time.Hour},
		"narrow, 40s": {narrow, 40 * time.Second}, "narrow, 60s": {narrow, time.Minute},
		"wide, 2h": {wide, 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := &serverClock{}
			s := newStore(t, jetstream.Shift(clock.show), jetstream.WithBuckets(jetstream.Buckets{Near: c.near, Far: c.far, Lead: c.lead, Settle: c.settle}))
			setBack(t, clock, s.Open(t), c.by)
		})
	}
}

// setBack is the course of TestClockSetBack.
func setBack(t *testing.T, clock *serverClock, e driver.Engine, by time.Duration) {
	b := newBook(t, clock)
	clock.set(by)
	q := b.open(e, by/3)
	b.start(q)
	began, dying := b.runAhead(e, q)
	clock.set(0)
	awaitSteps(t, q, 1)

	// These are due now, in the closed range, and in between.
	now := clock.now()
	closed := func(i int) time.Time { return began.Add(time.Duration(i%40) * closedRange / 40) }
	var refs []durable.Ref
	for i := range 40 {
		refs = append(refs, b.add(q,
			durable.Job{Kind: "plain", At: now.Add(time.Duration(i) * by / 40)},
			durable.Job{Kind: "plain", At: closed(i), Key: fmt.Sprint("k", i)},
			durable.Job{Kind: "plain", At: closed(i)},
			durable.Job{Kind: "retried", At: now.Add(time.Duration(i) * by / 40)})...)
	}
	require.NoError(t, q.Redrive(within(t), dying))
	b.change(q, refs[len(refs)-40:], closed, by)
	if by > time.Minute { // time enough
		b.keyTwice(q, closed(39), by)
	}
	b.mu.Lock()
	ran := len(b.begun)
	b.mu.Unlock()
	recurs := clock.now().Before(began.Add(-5 * time.Second)) // there is time to store the schedule
	if recurs {
		require.NoError(t, q.SetSchedule(within(t), "every", "@every 1s", durable.Job{Kind: "plain"}, durable.StartAt(began), durable.EndAt(began.Add(closedRange))))
	}

	passing, stop := context.WithCancel(t.Context()) // time passes until all is done
	defer stop()
	go func() {
		for i := 1; passing.Err() == nil; i++ {
			time.Sleep(time.Second)
			clock.set(time.Duration(i) * by / 8)
		}
	}()
	every := 0
	if recurs {
		n, err := b.awaitSchedule(q)
		require.NoError(t, err)
		every = n
	}
	b.check()
	t.Logf("%d ran before, %d in all; %v", ran, len(b.done), every)
}

// closedRange is the length of the range of time whose buckets are closed when the clock is set back.
const closedRange = 4 * time.Second

// runAhead adds jobs over the closed range, and waits until its buckets are closed. It returns when the range
// begins, and a job that is dead.
func (b *book) runAhead(e driver.Engine, q *durable.Queue) (began time.Time, dying durable.Ref) {
	began = b.clock.now().Truncate(time.Microsecond)
	for i := range 40 { // a bucket is closed only if something was in it
		b.add(q, durable.Job{Kind: "plain", At: began.Add(time.Duration(i+1) * closedRange / 40)})
	}
	dying = b.known(q, durable.Job{Kind: "dying"})
	await(b.t, func() string {
		if until := jetstream.ClosedUntil(e); until.Before(began.Add(closedRange)) {
			return "closed until " + until.String()
		}
		return ""
	})
	return began, dying
}

// change cancels every fourth of the jobs that wait, and moves the one after it into the closed range.
func (b *book) change(q *durable.Queue, refs []durable.Ref, closed func(int) time.Time, by time.Duration) {
	b.t.Helper()
	for i, ref := range refs {
		if ref == "" {
			continue
		}
		info, err := q.Get(within(b.t), ref)
		if errors.Is(err, durable.ErrNotFound) || info.State != durable.Waiting || info.Due.Before(b.clock.now().Add(time.Second)) {
			continue // it runs, or may at any moment
		}
		require.NoError(b.t, err)
		switch i % 4 {
		case 0:
			b.cancel(q, ref, info.Due.Sub(b.clock.now()))
		case 1:
			ok, err := q.Reschedule(within(b.t), ref, closed(7*i))
			require.NoError(b.t, err)
			if by > time.Minute {
				require.True(b.t, ok)
				info, err := q.Get(within(b.t), ref)
				require.NoError(b.t, err)
				require.False(b.t, info.Due.Before(closed(7*i)))
			}
		}
	}
}

// keyTwice cancels a job with a key that is due at a time, and gives the key to another.
func (b *book) keyTwice(q *durable.Queue, at time.Time, left time.Duration) {
	job := durable.Job{Kind: "plain", At: at, Key: "canceled"}
	b.cancel(q, b.add(q, job)[0], left)
	again := b.add(q, job)[0]
	_, err := q.Add(within(b.t), job)
	require.ErrorIs(b.t, err, durable.ErrExists)
	_, err = q.Get(within(b.t), again)
	require.NoError(b.t, err)
}

// awaitSchedule waits until a schedule has ended, and returns how many attempts of its occurrences have begun.
func (b *book) awaitSchedule(q *durable.Queue) (n int, err error) {
	await(b.t, func() string {
		b.mu.Lock()
		n, err = b.occurred, nil
		b.mu.Unlock()
		if n < 1 {
			return "no occurrence has run"
		}
		for info, e := range q.All(within(b.t), durable.Filter{}) {
			if err = e; err == nil && info.Job.Key != "" {
				time.Sleep(200 * time.Millisecond) // a scan is expensive
				return "the schedule has not ended: " + fmt.Sprint(info.Job.Key, info.State, info.Due)
			}
		}
		return ""
	})
	return n, err
}

// Three servers whose clocks differ lead one after the other, while jobs are stored and
// run: none is lost or refused, and none is early by more than the clocks differ.
func TestClocksThatDiffer(t *testing.T) {
	t.Parallel()
	const apart = 8 * time.Second
	clock := &serverClock{servers: map[string]time.Duration{"n0": 0, "n1": apart, "n2": -apart}}
	c := newCluster(t)
	c.opts = append(c.opts, jetstream.Shift(clock.show))
	b := newBook(t, clock)
	b.early = 2 * apart
	var queues []*durable.Queue
	for range 2 {
		q := b.open(c.Open(t), time.Second, durable.WithLease(busy.Longer(15*time.Second)))
		b.start(q)
		queues = append(queues, q)
	}
	nc := c.connectTo(t, 0)
	for i := range 5 {
		for k := range 12 {
			b.add(queues[k%2], // it may be uncertain: the election took long, or the next clock is too far on
				durable.Job{Kind: "plain", After: time.Duration(k) * 300 * time.Millisecond},
				durable.Job{Kind: "plain", After: time.Duration(k) * 300 * time.Millisecond, Key: fmt.Sprint(i, " ", k)},
				durable.Job{Kind: "retried", After: time.Duration(k) * 100 * time.Millisecond})
			time.Sleep(100 * time.Millisecond)
		}
		// Another one takes over; an answer may be lost.
		if _, err := nc.Request("$JS.API.STREAM.LEADER.STEPDOWN.TW_default_0", nil, 5*time.Second); err != nil {
			t.Log("stepdown:", err)
		}
	}
	await(t, b.missing)
	t.Logf("%d jobs, %d steps of the clock", len(b.done), queues[0].Stats().ClockSteps)
	require.Positive(t, queues[0].Stats().ClockSteps)
}

func unjoin(err error) []error {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		return j.Unwrap()
	}
	if err != nil {
		return []error{err}
	}
	return nil
}
