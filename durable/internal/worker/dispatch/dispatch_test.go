package dispatch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// desk is a Dispatcher whose claims are granted at once, and whose jobs are due in the order of
// their names.
type desk struct {
	t      *testing.T
	d      *Dispatcher
	now    time.Time
	timers []pending
	begun  []string
	runs   map[string]*Job
	open   map[string]bool

	set      time.Duration // by how much the engine's clock was set
	deferred []Deferred
}

func newDesk(t *testing.T, c Config) *desk {
	if c.Kinds == nil {
		c.Kinds = []string{"k"}
	}
	c.Lease = 30 * time.Second
	s := &desk{t: t, now: time.Unix(2e9, 0), runs: map[string]*Job{}, open: map[string]bool{}}
	s.d = New(c, s.moment())
	return s
}

func (s *desk) moment() Moment { return Moment{Local: s.now, Engine: s.now.Add(s.set)} }

// add adds jobs that are overdue, each by a millisecond less than the one before.
func (s *desk) add(names ...string) {
	for i, name := range names {
		s.addOne(name, func(r *driver.Record) {
			r.Due = s.now.Add(time.Duration(i-len(names)) * time.Millisecond)
		})
	}
}

func (s *desk) addOne(name string, set func(*driver.Record)) {
	h := &driver.Delivery{Ref: driver.Ref(name), Record: driver.Record{Job: driver.Job{Kind: "k", MaxAttempts: 25}, Due: s.now}}
	set(&h.Record)
	s.d.Add(h, s.moment())
	s.next()
}

func (s *desk) next() *Actions {
	a := s.d.Next(s.moment(), true)
	for _, j := range a.Begin {
		s.begun = append(s.begun, string(j.Delivery.Ref))
		s.runs[string(j.Delivery.Ref)] = j
	}
	for _, t := range a.Timers {
		s.timers = append(s.timers, pending{s.now.Add(t.After), t})
	}
	for _, k := range a.Kinds {
		s.open[k.Kind] = k.Open
	}
	s.deferred = append(s.deferred, a.Deferred...)
	if len(s.d.held.kinds) < 10 && len(s.d.held.jobs) < 200 { // it looks at each job for each kind
		require.NoError(s.t, s.d.verify())
	}
	return a
}

// claim has what is to be claimed answered with one result, until nothing is.
func (s *desk) claim(r driver.ClaimResult) (n int) {
	for {
		jobs := s.d.Claims(s.moment())
		if s.next(); len(jobs) == 0 {
			return n
		}
		results := make([]driver.ClaimResult, len(jobs))
		for i := range results {
			results[i] = r
		}
		s.d.Answered(jobs, results, s.moment())
		s.next()
		if n += len(jobs); r.Status != driver.Granted {
			return n
		}
	}
}

var grant = driver.ClaimResult{Status: driver.Granted, Attempt: 1}

// pass lets time pass.
func (s *desk) pass(d time.Duration) {
	s.now = s.now.Add(d)
	for i := 0; i < len(s.timers); i++ {
		if p := s.timers[i]; p.timer.what != -1 && !p.at.After(s.now) {
			s.timers[i].timer.what = -1
			s.d.Fire(p.timer, s.moment())
			s.next()
		}
	}
}

// end ends a job that runs.
func (s *desk) end(name string) {
	j := s.runs[name]
	require.NotNil(s.t, j, name)
	s.d.Done(j, s.moment())
	s.next()
	s.d.Forget(j, s.moment())
	s.next()
}

func TestPriorityOrder(t *testing.T) {
	for n, want := range map[int][3]int{1: {0, 1, 2}, 7: {0, 1, 2}, 8: {1, 2, 0}, 63: {0, 1, 2}, 64: {2, 1, 0}, 72: {1, 2, 0}, 128: {2, 1, 0}} {
		require.Equal(t, want, priorityOrder(n), n)
	}
}

// With one slot each job begins when the one before has ended: by priority, those of one priority as
// they were due, and one of a lower priority now and then.
func TestOrder(t *testing.T) {
	s := newDesk(t, Config{Concurrency: 1})
	for i := range 20 {
		for p, name := range []string{"low", "normal", "high"} {
			s.addOne(fmt.Sprintf("%s%02d", name, i), func(r *driver.Record) {
				r.Priority, r.Due = driver.Priority(p-1), s.now.Add(time.Duration(i-100)*time.Millisecond)
			})
		}
	}
	for n := range 60 {
		s.claim(grant)
		require.Len(t, s.begun, n+1)
		s.end(s.begun[n])
	}
	seen := map[string]int{}
	for n, name := range s.begun {
		class := strings.TrimRight(name, "0123456789")
		require.Equal(t, fmt.Sprintf("%s%02d", class, seen[class]), name, "each priority in the order of due times")
		seen[class]++
		switch {
		case (n+1)%8 == 0 && n < 20:
			require.Equal(t, "normal", class, n)
		case seen["high"] < 20 && (n+1)%8 != 0:
			require.Equal(t, "high", class, n)
		}
	}
}

// Ends that are not written down yet bound what begins.
func TestUnwrittenEnds(t *testing.T) {
	s := newDesk(t, Config{Concurrency: 2})
	for i := range 100 {
		s.add(fmt.Sprint(i))
	}
	var ended []*Job
	for s.claim(grant); len(s.begun) > len(ended); s.claim(grant) {
		j := s.runs[s.begun[len(ended)]]
		ended = append(ended, j)
		s.d.Done(j, s.moment())
		s.next()
	}
	require.Len(t, s.begun, minUnwritten)
	s.d.Forget(ended[0], s.moment())
	s.next()
	s.claim(grant)
	require.Len(t, s.begun, minUnwritten+1)
}

// However many kinds have jobs that are due, the choice of the next one looks at one queue for
// all kinds without a limit, and at one for each kind that has a limit of its own.
func TestKindsWithoutALimitShareQueues(t *testing.T) {
	const kinds = 1000
	c := Config{Concurrency: 256, Limits: map[string]int{"k0": 1, "k500": 1}}
	for i := range kinds {
		c.Kinds = append(c.Kinds, fmt.Sprint("k", i))
	}
	s := newDesk(t, c)
	for i := range kinds {
		h := &driver.Delivery{Ref: driver.Ref(fmt.Sprint(i)), Record: driver.Record{Job: driver.Job{Kind: c.Kinds[i], MaxAttempts: 25}, Due: s.now}}
		s.d.Add(h, s.moment())
	}
	s.next()
	require.Len(t, s.d.held.activeKinds(), 3)
	for n := range kinds {
		s.claim(grant)
		s.end(s.begun[n])
	}
	require.Len(t, s.begun, kinds)
}

// A job whose claim is under way keeps its slot from one of a lower priority, also where they are of
// kinds that have no queues together.
func TestComingKeepsItsSlot(t *testing.T) {
	s := newDesk(t, Config{Concurrency: 1, Kinds: []string{"k", "limited"}, Limits: map[string]int{"limited": 1}})
	s.add("first")
	s.claim(grant)
	s.addOne("low", func(r *driver.Record) { r.Priority = -1 })
	s.claim(grant)
	s.addOne("high", func(r *driver.Record) { r.Kind, r.Priority = "limited", 1 })
	claims := s.d.Claims(s.moment())
	require.Len(t, claims, 1)
	s.end("first")
	require.Equal(t, []string{"first"}, s.begun)
	s.d.Answered(claims, []driver.ClaimResult{grant}, s.moment())
	s.next()
	require.Equal(t, []string{"first", "high"}, s.begun)
	s.end("high")
	require.Equal(t, []string{"first", "high", "low"}, s.begun)
}

func TestInterval(t *testing.T) {
	for lead, want := range map[time.Duration]time.Duration{
		MinLead:                    75 * time.Millisecond,
		MaxLead - time.Microsecond: 75 * time.Millisecond,
		MaxLead:                    150 * time.Millisecond,
	} {
		times := &timing{lead: lead}
		require.Equal(t, want, times.interval(), lead)
	}
}

// The lead grows at once with a slow claim, within its bounds, and shrinks slowly.
func TestLeadAdapts(t *testing.T) {
	times := &timing{lead: MinLead}
	for _, c := range []struct{ took, want time.Duration }{
		{time.Millisecond, MinLead},
		{50 * time.Millisecond, 200 * time.Millisecond},
		{time.Millisecond, 198 * time.Millisecond},
		{time.Hour, MaxLead},
	} {
		times.adapt(c.took)
		require.Equal(t, c.want, times.lead)
	}
	for range 1000 {
		times.adapt(0)
	}
	require.Equal(t, MinLead, times.lead)
}

// Jobs that are due one after the other are claimed together, each of them between the
// whole lead and half of it ahead.
func TestJobsAreClaimedInRounds(t *testing.T) {
	for _, lead := range []time.Duration{MinLead, 190 * time.Millisecond, MaxLead} {
		s := newDesk(t, Config{Concurrency: 1000})
		s.d.timing.lead = lead
		const jobs = 500
		from := s.now.Add(time.Second)
		for i := range jobs {
			h := &driver.Delivery{Ref: driver.Ref(fmt.Sprint(i)), Record: driver.Record{Job: driver.Job{Kind: "k", MaxAttempts: 25}, Due: from.Add(time.Duration(i) * time.Millisecond)}}
			s.d.Add(h, s.moment())
		}
		s.next()
		rounds, taken := 0, 0
		for taken < jobs {
			s.pass(time.Millisecond)
			claims := s.d.Claims(s.moment())
			s.next()
			for _, j := range claims {
				left := j.Delivery.Record.Due.Sub(s.now)
				require.LessOrEqual(t, left, lead)
				require.GreaterOrEqual(t, left, lead/2-time.Millisecond)
			}
			if len(claims) > 0 {
				rounds, taken = rounds+1, taken+len(claims)
			}
		}
		require.LessOrEqual(t, rounds, int(jobs*time.Millisecond/s.d.timing.interval())+2)
		require.Empty(t, s.d.timing.coalesced)
	}
}

func flow(revision int64, limits ...driver.Limit) *driver.FlowControl {
	var all []*driver.StoredLimit
	for i, l := range limits {
		all = append(all, &driver.StoredLimit{Name: fmt.Sprint(i), ID: int64(i) + 1, Limit: l})
	}
	return driver.NewFlowControl(revision, all, nil)
}

// Each lane of a limit takes its turn, however many jobs of another are due before.
func TestLanesTakeTurns(t *testing.T) {
	s := newDesk(t, Config{Concurrency: 10})
	s.d.SetFlowControl(flow(1, driver.Limit{Kind: "k", Running: 1}), s.moment())
	for i := range 20 {
		s.addOne(fmt.Sprint("a", i), func(r *driver.Record) { r.Lane, r.Due = "a", s.now.Add(-time.Minute) })
	}
	for _, lane := range []string{"b", "c"} {
		s.addOne(lane, func(r *driver.Record) { r.Lane = lane })
	}
	s.pass(0)
	for n := range 5 {
		require.Equal(t, 1, s.claim(grant), "one permit")
		require.Len(t, s.begun, n+1)
		s.end(s.begun[n])
	}
	require.ElementsMatch(t, []string{"b", "c"}, s.begun[1:3])
}

// A gate that was shut opens after the time that the engine has named, or when a permit is free.
func TestGateOpens(t *testing.T) {
	for _, freed := range []bool{false, true} {
		s := newDesk(t, Config{Concurrency: 10})
		s.d.SetFlowControl(flow(1, driver.Limit{Kind: "k", Running: 5}), s.moment())
		s.add("j")
		s.pass(0)
		refused := driver.ClaimResult{Status: driver.Throttled, Limit: 1, After: driver.RetryInterval}
		require.Equal(t, 1, s.claim(refused))
		s.pass(driver.RetryInterval - time.Millisecond)
		require.Zero(t, s.claim(refused), "it would be refused")
		waiting, stats := s.d.LimitStats()
		require.Equal(t, int64(1), waiting)
		require.Equal(t, []LimitStats{{Name: "0", Waiting: 1}}, stats)
		if freed {
			s.d.Freed(driver.LimitKey{Limit: 1})
			s.next()
		} else {
			s.pass(time.Millisecond)
		}
		require.Equal(t, 1, s.claim(grant))
		require.Equal(t, []string{"j"}, s.begun)
	}
}

// A kind with a limit is shut while many of its jobs are due, and opened when half of them have begun.
func TestBackpressure(t *testing.T) {
	s := newDesk(t, Config{Concurrency: 10, Limits: map[string]int{"k": 1}})
	n := 0
	for ; s.d.held.kinds["k"].unclaimed() < s.d.held.kinds["k"].maxUnclaimed(); n++ {
		require.NotContains(t, s.open, "k")
		s.add(fmt.Sprint(n))
	}
	require.Equal(t, map[string]bool{"k": false}, s.open)
	for i := 0; !s.open["k"]; i++ {
		require.Less(t, i, n)
		s.claim(grant)
		s.end(s.begun[i])
	}
	require.LessOrEqual(t, s.d.held.kinds["k"].unclaimed(), s.d.held.kinds["k"].maxUnclaimed()/2)
}

// A paused kind is shut, and its jobs begin once it is resumed.
func TestPause(t *testing.T) {
	s := newDesk(t, Config{Concurrency: 10})
	s.d.SetFlowControl(driver.NewFlowControl(1, nil, []driver.Pause{{Pausable: driver.Pausable{Kind: "k"}}}), s.moment())
	s.add("j")
	s.pass(0)
	require.Zero(t, s.claim(grant))
	require.Equal(t, map[string]bool{"k": false}, s.open)
	waiting, stats := s.d.LimitStats()
	require.Equal(t, int64(1), waiting)
	require.Equal(t, []LimitStats{{Waiting: 1}}, stats)
	s.d.SetFlowControl(flow(2), s.moment())
	s.next()
	require.Equal(t, 1, s.claim(grant))
	require.Equal(t, map[string]bool{"k": true}, s.open)
	require.Equal(t, []string{"j"}, s.begun)
}

// A pause with an end ends by the engine's clock, with no other call, and asks for no claim before. A clock that
// was set back makes it no longer than twice its length.
func TestPauseEnds(t *testing.T) {
	for _, back := range []time.Duration{0, 20 * time.Second, time.Hour} {
		s := newDesk(t, Config{Concurrency: 10})
		now := s.moment().Engine
		s.d.SetFlowControl(driver.NewFlowControl(1, nil, []driver.Pause{
			{Pausable: driver.Pausable{Kind: "k"}, Since: now, Until: now.Add(30 * time.Second)},
			{Pausable: driver.Pausable{Kind: "other"}, Since: now, Until: now.Add(40 * time.Second)},
		}), s.moment())
		s.add("j")
		s.pass(29 * time.Second)
		require.Zero(t, s.claim(grant))
		require.Equal(t, map[string]bool{"k": false}, s.open)
		require.Len(t, s.d.Pauses(), 2)
		s.set = -back
		s.pass(999 * time.Millisecond)
		require.Zero(t, s.claim(grant))
		if back == 20*time.Second {
			s.pass(19 * time.Second)
			require.Zero(t, s.claim(grant))
			s.pass(time.Second)
		}
		s.pass(time.Millisecond)
		require.Equal(t, 1, s.claim(grant), "%v back", back)
		require.Equal(t, map[string]bool{"k": true}, s.open)
	}
}

// Jobs of a lane that is paused for a while are handed back until the pause ends, and those of one that is
// paused for long are not asked for each second.
func TestDeferredByPauseWithEnd(t *testing.T) {
	for _, d := range []time.Duration{20 * time.Second, time.Hour} {
		s := newDesk(t, Config{Concurrency: 10})
		now := s.moment().Engine
		s.d.SetFlowControl(driver.NewFlowControl(1, nil, []driver.Pause{
			{Pausable: driver.Pausable{Lane: "x"}, Since: now, Until: now.Add(d)},
		}), s.moment())
		for i := range 10000 {
			s.addOne(fmt.Sprint(i), func(r *driver.Record) { r.Lane = "x" })
		}
		s.pass(0)
		require.Zero(t, s.claim(grant))
		require.Len(t, s.d.held.jobs, minInLane)
		s.pass(10 * time.Millisecond)
		require.NotEmpty(t, s.deferred)
		for _, some := range s.deferred {
			require.GreaterOrEqual(t, some.After, min(d, mostDeferral/2))
			require.LessOrEqual(t, some.After, min(d+10000*comeBack+time.Second, mostDeferral))
		}
		if d < time.Minute {
			s.pass(d)
			require.Equal(t, 10, s.claim(grant))
		}
	}
}

// Limits that have the revision of those before are others all the same, in a store that went back.
func TestRevisionThatIsGivenTwice(t *testing.T) {
	s := newDesk(t, Config{Concurrency: 10})
	s.d.SetFlowControl(driver.NewFlowControl(1, nil, []driver.Pause{{Pausable: driver.Pausable{Kind: "k"}}}), s.moment())
	s.add("j")
	s.pass(0)
	require.Zero(t, s.claim(grant))
	s.d.SetFlowControl(driver.NewFlowControl(1, nil, []driver.Pause{{Pausable: driver.Pausable{Kind: "other"}}}), s.moment())
	s.next()
	require.Equal(t, 1, s.claim(grant))
}

// A job that no limit covers has nothing of limits, also while others are limited.
func TestPlainJobHasNoLimits(t *testing.T) {
	s := newDesk(t, Config{Kinds: []string{"k", "l"}, Concurrency: 10})
	s.d.SetFlowControl(flow(1, driver.Limit{Kind: "l", Running: 1}), s.moment())
	s.add("plain")
	require.Nil(t, s.d.held.jobs["plain"].limits)
	require.False(t, s.d.held.jobs["plain"].Delivery.Exact)
	require.Empty(t, s.timers)
}

// crowd returns a desk with one slot: a of the kind k runs, b of the kind "other" is ready, and c waits to
// be claimed until b has begun.
func crowd(t *testing.T) *desk {
	s := newDesk(t, Config{Kinds: []string{"k", "other"}, Concurrency: 1})
	s.add("a")
	s.claim(grant)
	s.addOne("b", func(r *driver.Record) { r.Kind, r.Due = "other", s.now.Add(-2*time.Millisecond) })
	s.addOne("c", func(r *driver.Record) { r.Due = s.now.Add(-time.Millisecond) })
	s.claim(grant)
	require.Equal(t, []string{"a"}, s.begun)
	require.Empty(t, s.d.Claims(s.moment()))
	s.next()
	return s
}

// A job that is ready and is canceled makes room for a claim.
func TestEndOfReadyWakesClaims(t *testing.T) {
	s := crowd(t)
	require.NotNil(t, s.d.End("b"))
	require.True(t, s.next().Claim)
	require.Len(t, s.d.Claims(s.moment()), 1)
}

// A pause hands ready jobs back, which makes room for a claim.
func TestPauseOfReadyWakesClaims(t *testing.T) {
	s := crowd(t)
	s.d.SetFlowControl(driver.NewFlowControl(1, nil, []driver.Pause{{Pausable: driver.Pausable{Kind: "other"}}}), s.moment())
	require.True(t, s.next().Claim)
	require.Len(t, s.d.Claims(s.moment()), 1)
}

// A job that was made due earlier, or later, while it waits for its time is held as it is now.
func TestMovedWhileFetched(t *testing.T) {
	s := newDesk(t, Config{Concurrency: 1})
	s.addOne("a", func(r *driver.Record) { r.Due = s.now.Add(4 * time.Second) })
	h := &driver.Delivery{Ref: "a", Record: driver.Record{Job: driver.Job{Kind: "k", MaxAttempts: 25}, Due: s.now, Version: 1}}
	if !s.d.Has(h) {
		s.d.Add(h, s.moment())
	}
	require.True(t, s.next().Claim)
	s.claim(grant)
	require.Equal(t, []string{"a"}, s.begun)
}

// A job that waits in a queue leaves it for a newer version that belongs to another one: the queue may be paused, or its
// kind may have no slot for long.
func TestNewerBelongsElsewhere(t *testing.T) {
	for name, set := range map[string]func(*driver.Record){
		"lane":    func(r *driver.Record) { r.Lane = "paused" },
		"kind":    func(r *driver.Record) { r.Kind = "slow" },
		"last":    func(r *driver.Record) { r.Kind, r.MaxAttempts = "slow", 1 },
		"suspect": func(r *driver.Record) { r.Kind, r.Crashes = "slow", 1 },
	} {
		t.Run(name, func(t *testing.T) {
			s := newDesk(t, Config{Concurrency: 4, Kinds: []string{"k", "slow"}, Limits: map[string]int{"slow": 1}})
			s.d.SetFlowControl(driver.NewFlowControl(1, nil, []driver.Pause{{Pausable: driver.Pausable{Lane: "paused"}}}), s.moment())
			for _, slow := range []string{"a", "b"} {
				s.addOne(slow, func(r *driver.Record) { r.Kind = "slow" })
				s.claim(grant)
			}
			s.addOne("c", func(r *driver.Record) { set(r) })
			s.pass(0)
			s.claim(grant)
			require.Equal(t, []string{"a"}, s.begun)
			h := &driver.Delivery{Ref: "c", Record: driver.Record{Job: driver.Job{Kind: "k", MaxAttempts: 25}, Due: s.now, Version: 1}}
			require.False(t, s.d.Has(h))
			s.d.Add(h, s.moment())
			s.next()
			s.claim(grant)
			require.Equal(t, []string{"a", "c"}, s.begun)
		})
	}
}

// A newer version with a higher priority does not wait for the turn of the job that is held.
func TestNewerHasPriority(t *testing.T) {
	s := newDesk(t, Config{Concurrency: 1})
	s.add("a", "b", "c", "d")
	s.claim(grant)
	h := &driver.Delivery{Ref: "d", Record: driver.Record{Job: driver.Job{Kind: "k", MaxAttempts: 25, Priority: driver.High}, Due: s.now, Version: 1}}
	require.False(t, s.d.Has(h))
	s.d.Add(h, s.moment())
	s.next()
	s.claim(grant)
	s.end("a")
	require.Equal(t, []string{"a", "d"}, s.begun)
}

// A newer version of a job that a full lane defers is handed back.
func TestNewerOfADeferred(t *testing.T) {
	s := newDesk(t, Config{Concurrency: 1})
	s.d.SetFlowControl(driver.NewFlowControl(1, nil, []driver.Pause{{Pausable: driver.Pausable{Lane: "x"}}}), s.moment())
	for i := range minInLane {
		s.addOne(fmt.Sprint(i), func(r *driver.Record) { r.Lane, r.Due = "x", s.now.Add(time.Duration(i-minInLane)*time.Second) })
	}
	s.pass(0)
	last := s.d.held.jobs[driver.Ref(fmt.Sprint(minInLane-1))].Delivery
	h := *last
	h.Record.Version++
	require.True(t, s.d.Has(&h))
	early := &driver.Delivery{Ref: "early", Record: last.Record}
	early.Record.Due = s.now.Add(-time.Hour)
	s.d.Add(early, s.moment())
	s.d.await(s.d.held.jobs["early"], s.moment())
	require.Contains(t, s.next().Dropped, &h)
}

// A newer version that came while a claim was under way takes the place of the job whose claim was refused.
func TestNewerOfARefusedClaim(t *testing.T) {
	s := newDesk(t, Config{Concurrency: 1})
	s.d.SetFlowControl(driver.NewFlowControl(1, []*driver.StoredLimit{{Name: "l", ID: 1, Limit: driver.Limit{PerLane: true, Running: 1}}}, nil), s.moment())
	s.addOne("a", func(r *driver.Record) { r.Lane = "full" })
	s.pass(0)
	jobs := s.d.Claims(s.moment())
	s.next()
	require.Len(t, jobs, 1)
	h := &driver.Delivery{Ref: "a", Record: driver.Record{Job: driver.Job{Kind: "k", MaxAttempts: 25}, Due: s.now, Version: 1}}
	require.True(t, s.d.Has(h))
	s.d.Answered(jobs, []driver.ClaimResult{{Status: driver.Throttled, Limit: 1, After: driver.RetryInterval}}, s.moment())
	s.next()
	s.claim(grant)
	require.Equal(t, []string{"a"}, s.begun)
}

// A newer version of a job that is dropped, or that ends while the worker drains, is handed back.
func TestNewerIsHandedBack(t *testing.T) {
	for name, drop := range map[string]func(s *desk){
		"drain":  func(s *desk) { s.d.Drain() },
		"ending": func(s *desk) { s.d.Drain(); s.next(); s.d.Forget(s.runs["a"], s.moment()) },
		"limits": func(s *desk) {
			s.d.SetFlowControl(driver.NewFlowControl(1, []*driver.StoredLimit{{Name: "l", ID: 1, Limit: driver.Limit{Kind: "k", Running: 1}}}, nil), s.moment())
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newDesk(t, Config{Concurrency: 1})
			s.add("a", "b")
			s.claim(grant)
			held := map[string]string{"ending": "a"}[name]
			if held == "" {
				held = "b"
			} else {
				s.d.Done(s.runs["a"], s.moment())
			}
			h := &driver.Delivery{Ref: driver.Ref(held), Record: driver.Record{Job: driver.Job{Kind: "k", MaxAttempts: 25}, Due: s.now, Version: 1}}
			require.True(t, s.d.Has(h))
			drop(s)
			require.Contains(t, s.next().Dropped, h)
		})
	}
}

// A worker takes no job while it holds as many jobs, or as many bytes of payloads, as it may. The end of one makes room.
func TestFull(t *testing.T) {
	for _, c := range []struct{ concurrency, payload, most int }{
		{8, 0, maxHeld}, {maxHeld, 0, 2 * maxHeld}, {8, driver.MaxPayload, maxHeldBytes / driver.MaxPayload},
	} {
		s := newDesk(t, Config{Concurrency: c.concurrency})
		payload, held := make([]byte, c.payload), 0
		for ; !s.d.Full() && held <= c.most; held++ {
			h := &driver.Delivery{Ref: driver.Ref(fmt.Sprint(held)), Record: driver.Record{Job: driver.Job{Kind: "k", MaxAttempts: 25, Payload: payload}, Due: s.now.Add(time.Hour)}}
			s.d.Add(h, s.moment())
		}
		require.Equal(t, c.most, held)
		s.d.Forget(s.d.Job("0"), s.moment())
		require.False(t, s.d.Full())
	}
}
