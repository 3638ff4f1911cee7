package jetstream

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
	"github.com/tickwheel/tickwheel/durable/testservers/busy"
)

// limited is a queue with limits, mostly one, and what claims there.
type limited struct {
	t *testing.T
	p *part
	e *engine
	n int

	lease time.Duration // of its workers
}

func newLimited(t *testing.T, p *part, limits ...durable.Limit) *limited {
	e := connectPartTo(t, p).(*engine)
	q, err := durable.Open(t.Context(), e)
	require.NoError(t, err)
	t.Cleanup(func() { q.Close() })
	for i, l := range limits {
		require.NoError(t, q.SetLimit(t.Context(), fmt.Sprint("l", i), l))
	}
	return &limited{t: t, p: e.parts[0], e: e, lease: time.Minute}
}

// worker returns one that sends no more heartbeats.
func (l *limited) worker(name string) *worker {
	w, err := l.e.Work(l.t.Context(), driver.WorkConfig{Name: name, Kinds: driver.NewKindSet([]string{"k"}), Lease: l.lease, Retention: time.Hour})
	require.NoError(l.t, err)
	return w.(*worker)
}

// live renews the lease of a worker; the test is skipped if that comes too late.
func (l *limited) live(w *worker) {
	err := w.Heartbeat(l.t.Context())
	if errors.Is(err, durable.ErrLeaseLost) {
		l.t.Skip("this machine is too busy for a lease of ", l.lease)
	}
	require.NoError(l.t, err)
}

// held stores a job, and returns it as it is handed out.
func (l *limited) held(lane string) *driver.Delivery {
	l.n++
	now := l.p.Now().Truncate(time.Microsecond)
	r := recordAt(fmt.Sprint("job", l.n), now, now)
	r.Kind, r.Lane, r.MaxAttempts = "k", lane, 5
	g := l.p.inserts.insertion(&r).group
	res := l.p.Commit(l.t.Context(), []stream.Group{g})[0]
	require.NoError(l.t, res.Err)
	return l.again(&driver.Delivery{Ref: l.p.refOf(&r), Record: r}, res.First)
}

// again is the same job as it is handed out once more.
func (l *limited) again(h *driver.Delivery, at uint64) *driver.Delivery {
	if hd, ok := h.Claim.(*handle); ok {
		at = hd.seq
	}
	hd := &handle{p: l.p.buckets, at: location{id: h.Record.ID, bucket: l.p.nearOf(h.Record.Due)}, since: time.Now(), seq: at, record: &h.Record}
	return &driver.Delivery{Ref: h.Ref, Record: h.Record, Exact: true, Claim: hd}
}

func (l *limited) claim(w *worker, h *driver.Delivery) driver.ClaimResult {
	return w.Claim(l.t.Context(), []*driver.Delivery{h})[0]
}

func (l *limited) status(h *driver.Delivery) status {
	s, err := l.p.status(l.t.Context(), h.Claim.(*handle).at)
	require.NoError(l.t, err)
	return s
}

func (l *limited) taken() (n int) {
	all, err := l.e.Usage(l.t.Context())
	require.NoError(l.t, err)
	for _, u := range all {
		n += u.Taken
	}
	return n
}

// The permit of a worker that is no more is free after its lease, though nobody is handed its
// job: another that waits for a permit frees it. That job is a suspect then.
func TestPermitOfTheDead(t *testing.T) {
	t.Parallel()
	l := newLimited(t, newPart(t), durable.Limit{Kind: "k", Running: 1})
	l.lease = busy.Longer(2 * time.Second) // one that is to be over
	first, second := l.held(""), l.held("")
	began := time.Now()
	require.Equal(t, driver.Granted, l.claim(l.worker("dead"), first).Status)
	w := l.worker("w")
	if v, s := l.claim(w, second), l.status(first); time.Since(began) < l.lease {
		require.Equal(t, driver.Throttled, v.Status)
		require.Equal(t, claimed, s.fate)
	}
	require.Eventually(t, func() bool {
		_ = w.Heartbeat(t.Context()) // late, or not
		return l.claim(w, second).Status == driver.Granted
	}, time.Minute, 100*time.Millisecond)
	require.GreaterOrEqual(t, time.Since(began), l.lease)
	require.Equal(t, 1, l.taken())
	s := l.status(first)
	require.Equal(t, freed, s.fate)
	require.Equal(t, 1, s.crashes)

	// Who lives keeps its permit, though it is asked for all the time.
	third := l.held("")
	other := l.worker("other")
	for range 3 {
		l.live(w)
		time.Sleep(sweepWait)
		v := l.claim(other, third)
		l.live(w)
		require.Equal(t, driver.Throttled, v.Status)
	}
	require.NoError(t, w.Finish(t.Context(), []driver.Completion{{Delivery: second, End: driver.Done}})[0])
	require.Equal(t, 0, l.taken())
	require.Equal(t, driver.Granted, l.claim(other, third).Status)
}

// What a worker gives back late is its own claim, and not that of the same job as it was handed
// out to it once more: also where the answer to the first claim was lost.
func TestReleaseOfEarlierHandle(t *testing.T) {
	t.Parallel()
	l := newLimited(t, newPart(t), durable.Limit{Kind: "k", Running: 2})
	for name, lost := range map[string]bool{"answered": false, "lost": true} {
		t.Run(name, func(t *testing.T) {
			w, first := l.worker("w"+name), l.held("")
			require.Equal(t, driver.Granted, l.claim(w, first).Status)
			if lost {
				first.Claim.(*handle).status.seq = 0
			}
			second := l.again(first, 0)
			require.Equal(t, driver.Granted, l.claim(w, second).Status)
			was := l.status(second)
			require.NoError(t, w.Release(t.Context(), []*driver.Delivery{first}, 0))
			require.Equal(t, was, l.status(second), "it is not the first one's")
			if lost {
				second.Claim.(*handle).status.seq = 0
				require.NoError(t, w.Release(t.Context(), []*driver.Delivery{second}, 0))
				require.Equal(t, freed, l.status(second).fate)
				return
			}
			require.NoError(t, w.Finish(t.Context(), []driver.Completion{{Delivery: second, End: driver.Done}})[0])
		})
	}
	require.Equal(t, 0, l.taken())
}

// A claim whose answer was lost, and whose status could not be read after that, does not wait for
// the permit that it has itself.
func TestClaimWaitsNotForItself(t *testing.T) {
	t.Parallel()
	l := newLimited(t, newPart(t), durable.Limit{Kind: "k", Running: 1})
	w, h := l.worker("w"), l.held("")
	require.Equal(t, driver.Granted, l.claim(w, h).Status)
	was := l.status(h)
	hd := h.Claim.(*handle)
	hd.status.seq, hd.unsure = 0, true
	require.Equal(t, driver.Granted, l.claim(w, h).Status)
	require.Equal(t, was.permits, l.status(h).permits)
	require.Equal(t, 1, hd.status.attempt)
	require.Equal(t, 1, l.taken())
	require.False(t, hd.unsure)
}

// A permit that no claim names, since the status was removed with its bucket, is freed; not if
// it was taken since it was looked at.
func TestPermitOfNobody(t *testing.T) {
	t.Parallel()
	l := newLimited(t, newPart(t), durable.Limit{Kind: "k", Running: 1})
	first, second := l.held(""), l.held("")
	w := l.worker("w")
	require.Equal(t, driver.Granted, l.claim(w, first).Status)
	hd := first.Claim.(*handle)
	name := hd.status.permits[0]
	was := l.p.quotas.all[quotaOf(driver.LimitKey{Limit: l.e.lastFlowControl().Limits()[0].ID})].permits[0]
	require.False(t, w.claimer.freeDead(t.Context(), l.p, name, "", was), "a claim that lives names it")
	require.NoError(t, l.p.PurgeAll(t.Context(), l.p.statusSubject(hd.at)))

	require.NoError(t, l.p.Write(t.Context(), l.p.quotas.permitWrite(name, hd.at, "w", "")))
	require.False(t, w.claimer.freeDead(t.Context(), l.p, name, "", was), "it was taken since")
	require.Equal(t, 1, l.taken())

	other := l.worker("other")
	require.Eventually(t, func() bool { return l.claim(other, second).Status == driver.Granted }, time.Minute, 100*time.Millisecond)
	require.Equal(t, 1, l.taken())
	require.Equal(t, "other", l.status(second).worker)
}

// A claim of what has ended, in a bucket that is closed, is taken back with its permit.
func TestPermitInClosedBucket(t *testing.T) {
	t.Parallel()
	l := newLimited(t, newPart(t), durable.Limit{Kind: "k", Running: 1})
	h := l.held("")
	hd := h.Claim.(*handle)
	require.NoError(t, l.p.PurgeAll(t.Context(), l.p.queues.nearSubject(hd.at.bucket, "k")))
	closeBucket(t, l.p, hd.at.bucket)
	require.Equal(t, driver.Gone, l.claim(l.worker("w"), h).Status)
	require.Equal(t, none, l.status(h).fate)
	require.Equal(t, 0, l.taken())
}

// A claim without limits goes through no quotas: a quota that a claim under limits has just read is there
// when that plans, whatever else is claimed meanwhile.
func TestPlainClaimsForgetNoQuotas(t *testing.T) {
	t.Parallel()
	qs := newPart(t).quotas
	qs.all["1.-"] = &quota{read: time.Now().Add(-2 * quotaAge)}
	require.NoError(t, qs.readQuotasOf(t.Context(), nil, true))
	require.Len(t, qs.all, 1)
	require.NoError(t, qs.readQuotas(t.Context(), map[string]*driver.StoredLimit{"2.-": {}}, nil, true))
	require.NotContains(t, qs.all, "1.-")
}

// What could not be claimed since another took the permit is given back without that permit.
func TestPermitOfAnothersClaim(t *testing.T) {
	t.Parallel()
	p := newPart(t)
	l := newLimited(t, p, durable.Limit{Kind: "k", Running: 1})
	first, theirs, mine := l.held(""), l.held(""), l.held("")
	w := l.worker("w")
	require.Equal(t, driver.Granted, l.claim(w, first).Status)
	require.NoError(t, w.Finish(t.Context(), []driver.Completion{{Delivery: first, End: driver.Done}})[0])

	e := connectPartTo(t, p).(*engine)
	_, err := e.FlowControl(t.Context())
	require.NoError(t, err)
	elsewhere := &limited{t: t, p: e.parts[0], e: e, lease: l.lease}
	theirs = elsewhere.again(theirs, 0)
	require.Equal(t, driver.Granted, elsewhere.claim(elsewhere.worker("other"), theirs).Status)

	require.Equal(t, driver.Throttled, l.claim(w, mine).Status)
	require.Len(t, mine.Claim.(*handle).status.permits, 1, "it has tried")
	require.NoError(t, w.Release(t.Context(), []*driver.Delivery{mine}, 0))
	require.Equal(t, 1, l.taken())
	require.Equal(t, none, l.status(mine).fate, "it was never claimed")
	require.Equal(t, driver.Throttled, l.claim(w, l.held("")).Status)
}

// A claim by limits and pauses that have changed is given back, and is judged by the present ones.
func TestFlowControlAfterTheClaim(t *testing.T) {
	t.Parallel()
	p := newPart(t)
	l := newLimited(t, p, durable.Limit{Kind: "other", Running: 1})
	w := l.worker("w")
	require.Equal(t, driver.Granted, l.claim(w, l.held("")).Status)
	q, err := durable.Open(t.Context(), connectPartTo(t, p))
	require.NoError(t, err)
	defer q.Close()
	change := func(f func() error) {
		w.e.notices.listeners = nil // it is not told
		require.NoError(t, f())
	}

	for _, pause := range []func() error{
		func() error { return q.Pause(t.Context(), durable.Pausable{Kind: "k"}) },
		func() error { return q.PauseFor(t.Context(), durable.Pausable{Kind: "k"}, time.Hour) },
	} {
		paused := l.held("")
		change(pause)
		require.Equal(t, driver.RetryLater, l.claim(w, paused).Status)
		require.Equal(t, freed, l.status(paused).fate)
		require.Equal(t, driver.ClaimResult{Status: driver.Throttled, After: driver.RetryInterval}, l.claim(w, paused))
		change(func() error { return q.Resume(t.Context(), durable.Pausable{Kind: "k"}) })
		require.Eventually(t, func() bool {
			_, err := l.e.FlowControl(t.Context())
			require.NoError(t, err)
			return l.claim(w, paused).Status == driver.Granted
		}, time.Minute, time.Millisecond)
		require.Equal(t, 1, l.status(paused).attempt)
		require.NoError(t, w.Release(t.Context(), []*driver.Delivery{paused}, 0))
	}

	change(func() error { return q.SetLimit(t.Context(), "one", durable.Limit{Kind: "k", Running: 1}) })
	first, second := l.held(""), l.held("")
	require.Equal(t, driver.RetryLater, l.claim(w, first).Status)
	require.Equal(t, driver.Granted, l.claim(w, first).Status)
	require.Equal(t, driver.Throttled, l.claim(w, second).Status)
	require.Len(t, l.status(first).permits, 1)

	// Who has a permit leaves it though the limit is there no more.
	change(func() error { return q.DeleteLimit(t.Context(), "one") })
	require.NoError(t, w.Finish(t.Context(), []driver.Completion{{Delivery: first, End: driver.Done}})[0])
	require.Equal(t, done, l.status(first).fate)
	require.Equal(t, 0, l.taken())
}

// Of a claim whose answer is lost the permit counts once.
func TestPermitWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	l := newLimited(t, connectPart(t, srv), durable.Limit{Kind: "k", Running: 2})
	h := l.held("")
	lost := &losing{srv: srv, write: "PUB " + l.p.subject("l.")}
	own := connectPart(t, lost)
	e := connectPartTo(t, own).(*engine)
	l.e, l.p = e, e.parts[0]
	h = l.again(h, 0)
	w := l.worker("w")
	_, err := e.FlowControl(t.Context())
	require.NoError(t, err)
	var v driver.ClaimResult
	require.Eventually(t, func() bool { v = l.claim(w, h); return v.Status == driver.Granted }, time.Minute, 10*time.Millisecond)
	require.True(t, lost.lost.Load())
	require.Equal(t, 1, v.Attempt)
	require.Equal(t, 1, l.taken())
	require.NoError(t, w.Finish(t.Context(), []driver.Completion{{Delivery: h, End: driver.Done}})[0])
	require.Equal(t, 0, l.taken())
}

// A request to cancel a claim does not cancel the next one.
func TestCancelRunningOfOneClaim(t *testing.T) {
	t.Parallel()
	l := newLimited(t, newPart(t), durable.Limit{Kind: "other", Running: 1})
	told := make(chan driver.Notice, 10)
	w := l.worker("w")
	w.c.Notify = func(n driver.Notice) { told <- n }
	h := l.held("")
	ok, err := l.e.CancelRunning(t.Context(), h.Ref)
	require.NoError(t, err)
	require.False(t, ok, "it waits")
	require.Equal(t, driver.Granted, l.claim(w, h).Status)
	ok, err = l.e.CancelRunning(t.Context(), h.Ref)
	require.NoError(t, err)
	require.True(t, ok)
	for range 2 {
		require.NoError(t, w.Heartbeat(t.Context()))
		require.Equal(t, []durable.Ref{h.Ref}, (<-told).Canceled, "with each heartbeat")
	}
	require.NoError(t, w.Release(t.Context(), []*driver.Delivery{h}, 0))
	require.Equal(t, driver.Granted, l.claim(w, l.again(h, 0)).Status)
	require.NoError(t, w.Heartbeat(t.Context()))
	require.Empty(t, told)
}

// Tokens that a clock has given out that was set back do not keep others waiting until it is
// as late again.
func TestTokensAfterAStepBack(t *testing.T) {
	t.Parallel()
	l := newLimited(t, newPart(t), durable.Limit{Kind: "k", Rate: 10, Burst: 2})
	h := l.held("")
	w := l.worker("w")
	id := l.e.lastFlowControl().Limits()[0].ID
	q := &quota{key: driver.LimitKey{Limit: id}}
	c := driver.Counter{TAT: time.Now().Add(time.Hour).UnixNano()}
	require.NoError(t, l.p.Write(t.Context(), l.p.quotas.counterWrite(q, c, l.p.Now())))
	began := time.Now()
	require.Equal(t, driver.Granted, l.claim(w, h).Status)
	v := l.claim(w, l.held(""))
	if v.Status == driver.Throttled {
		require.Less(t, v.After, time.Second)
	} else if time.Since(began) < 100*time.Millisecond { // no token has come meanwhile
		require.False(t, v.At.IsZero(), "the next token comes later: %+v", v)
	}
}

// Who waits for a token looks for no permits of the dead: that takes long where many run.
func TestTokenIsNoPermit(t *testing.T) {
	t.Parallel()
	l := newLimited(t, newPart(t), durable.Limit{Kind: "k", Rate: 0.001, Burst: 1})
	w := l.worker("w")
	require.Equal(t, driver.Granted, l.claim(w, l.held("")).Status)
	require.Equal(t, driver.Throttled, l.claim(w, l.held("")).Status)
	q := l.p.quotas.all[quotaOf(driver.LimitKey{Limit: l.e.lastFlowControl().Limits()[0].ID})]
	require.Equal(t, 1, q.used)
	require.Zero(t, q.swept)
}

// What another has claimed who lives is left to that one, and the rest of the call is claimed.
func TestClaimBesideAnothers(t *testing.T) {
	t.Parallel()
	l := newLimited(t, newPart(t), durable.Limit{Kind: "k", Rate: 1000, Burst: 1000})
	other, w := l.worker("other"), l.worker("w")
	mine, theirs := l.held(""), l.held("")
	require.Equal(t, driver.Granted, l.claim(other, theirs).Status)
	for _, again := range []bool{false, true} { // it is known at first, or once the batch is refused
		held := []*driver.Delivery{l.again(mine, 0), l.again(theirs, 0)}
		held[1].Claim.(*handle).again = again
		results := w.Claim(t.Context(), held)
		require.Equal(t, driver.Granted, results[0].Status)
		require.Equal(t, driver.RetryLater, results[1].Status)
		require.Positive(t, results[1].After)
		require.LessOrEqual(t, results[1].After, l.lease+time.Second)
		require.NoError(t, w.Release(t.Context(), held[:1], 0))
	}
	require.Equal(t, 1, l.taken())
}

// Claims under several limits are as many commits as the server takes.
func TestManyClaimsUnderSeveralLimits(t *testing.T) {
	t.Parallel()
	limit := durable.Limit{Kind: "k", PerLane: true, Running: 1000, Rate: 1000, Burst: 1000}
	l := newLimited(t, newPart(t), limit, limit, limit)
	var held []*driver.Delivery
	for i := range 150 {
		held = append(held, l.held(fmt.Sprint("lane", i)))
	}
	for _, res := range l.worker("w").Claim(t.Context(), held) {
		require.Equal(t, driver.Granted, res.Status)
	}
	require.Equal(t, 3*len(held), l.taken())
}

// That whose turn it is has changed since it was read refuses no claim. That tokens were taken
// does.
func TestCounterThatHasChanged(t *testing.T) {
	t.Parallel()
	for refused, limit := range map[int]durable.Limit{0: {Kind: "k", Running: 2}, 1: {Kind: "k", Running: 2, Rate: 1, Burst: 2}} {
		l := newLimited(t, newPart(t), limit)
		w := l.worker("w")
		w.others.Store(1)
		jobs := []*claimRequest{newClaimRequest(l.e.lastFlowControl(), l.held(""), l.p.Now())}
		rest, err := w.claimer.survey(t.Context(), l.p, jobs, "token")
		require.NoError(t, err)
		drafts, won, _ := w.claimer.planClaims(l.p, rest)
		require.Len(t, won, 1)
		q := &quota{key: driver.LimitKey{Limit: l.e.lastFlowControl().Limits()[0].ID}}
		c := driver.Counter{LastHolder: "other", TAT: l.p.Now().Add(time.Second).UnixNano()}
		require.NoError(t, l.p.Write(t.Context(), l.p.quotas.counterWrite(q, c, l.p.Now())))
		require.Len(t, w.claimer.commitClaims(t.Context(), l.p, drafts, won, "token", true), refused)
		require.Equal(t, 1-refused, l.taken())
	}
}

// Deferred jobs are handed out again when the limits or pauses change.
func TestDeferredUntilFlowControlChanges(t *testing.T) {
	t.Parallel()
	p := newPart(t)
	l := newLimited(t, p, durable.Limit{Kind: "other", Running: 1})
	w := l.worker("w")
	w.c.Notify, w.c.Ahead = func(driver.Notice) {}, time.Second
	given := make(chan *driver.Delivery, 100)
	ctx, cancel := context.WithCancel(t.Context())
	fed := make(chan error)
	go func() {
		fed <- w.Fetch(ctx, func(held []*driver.Delivery) {
			for _, h := range held {
				given <- h
			}
		})
	}()
	defer func() { cancel(); require.NoError(t, <-fed) }()
	h := l.held("")
	next := func() *driver.Delivery {
		select {
		case h := <-given:
			return h
		case <-time.After(time.Minute):
			t.Fatal("it is not handed out")
			return nil
		}
	}
	got := next()
	require.Equal(t, h.Ref, got.Ref)
	require.NoError(t, w.Release(t.Context(), []*driver.Delivery{got}, time.Hour))
	q, err := durable.Open(t.Context(), connectPartTo(t, p))
	require.NoError(t, err)
	defer q.Close()
	require.NoError(t, q.Pause(t.Context(), durable.Pausable{Kind: "other"}))
	require.Equal(t, h.Ref, next().Ref)
}

// What is stored of permits and counters is read as it was written.
func TestPermitRoundTrip(t *testing.T) {
	qs := newQuotas(&buckets{Stream: &stream.Stream{}, subjects: subjects{root: "S"}})
	at := location{id: "AB-1_c", bucket: -5, version: 3}
	w := qs.permitWrite("7.-.2", at, "w", "a b ä")
	s, lane, err := decodePermit(stream.Message{Seq: 9, Data: w.Data})
	require.NoError(t, err)
	require.Equal(t, permit{seq: 9, at: at, worker: "w"}, s)
	require.Equal(t, "a b ä", lane)
	s, _, err = decodePermit(stream.Message{Seq: 9})
	require.NoError(t, err)
	require.Equal(t, permit{seq: 9}, s, "free")
	for _, bad := range []string{"x", "x y 1 w l", "1 y x w l", "1 y 2 w"} {
		_, _, err := decodePermit(stream.Message{Data: []byte(bad)})
		require.ErrorIs(t, err, durable.ErrStorage, bad)
	}
	q := &quota{key: driver.LimitKey{Limit: 7, Lane: "a b"}}
	c := driver.Counter{Taken: 4, TAT: 1, TATBehind: 3, ReservedFor: "t", ReservedUntil: 2, LastHolder: "l"}
	got, lane, err := decodeCounter(stream.Message{Data: qs.counterWrite(q, c, time.Now()).Data})
	require.NoError(t, err)
	c.Taken = 0
	require.Equal(t, c, got)
	require.Equal(t, "a b", lane)
	_, _, err = decodeCounter(stream.Message{Data: []byte("x")})
	require.ErrorIs(t, err, durable.ErrStorage)
}
