package enginetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// listed goes over all pages of n jobs, and returns their Refs.
func (r *rig) listed(f durable.Filter, n int) (refs []durable.Ref) {
	r.t.Helper()
	for after := ""; ; {
		infos, next, err := r.List(within(r.t), f, after, n)
		require.NoError(r.t, err)
		require.LessOrEqual(r.t, len(infos), n)
		for _, i := range infos {
			require.True(r.t, matches(f, i), "%v", i)
			refs = append(refs, i.Ref)
		}
		if next == "" {
			return refs
		}
		require.NotEqual(r.t, after, next)
		after = next
	}
}

// A listing in pages has each job once, in the order of their time.
func pages(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	var waits, odd, tagged []durable.Ref
	for i := range 60 {
		j := durable.Job{Kind: []string{"a", "b", "c"}[i%3], Lane: []string{"", "odd"}[i%2]}
		if i%10 == 0 {
			j.Meta = map[string]string{"tag": "x"}
		}
		after := time.Duration(i-40) * time.Minute // hours, minutes and seconds from now
		if i >= 50 {
			after = time.Duration(i) * time.Hour
		}
		if after < 0 {
			after = 0 // all of these are due at the moments when they are added
		}
		j.After = after
		ref := r.add(j)[0]
		waits = append(waits, ref)
		if i%2 == 1 {
			odd = append(odd, ref)
		}
		if i%10 == 0 {
			tagged = append(tagged, ref)
		}
		time.Sleep(time.Millisecond)
	}
	for _, n := range []int{7, 30, 1000} {
		require.Equal(t, waits, r.listed(durable.Filter{}, n))
	}
	require.Equal(t, waits, r.listed(durable.Filter{State: durable.Waiting}, 59))
	require.Equal(t, odd, r.listed(durable.Filter{Lane: "odd"}, 10))
	require.Equal(t, tagged, r.listed(durable.Filter{Meta: map[string]string{"tag": "x"}}, 4))
	require.Len(t, r.listed(durable.Filter{Kind: "b"}, 3), 20)
	require.Empty(t, r.listed(durable.Filter{State: durable.Running}, 5))
	require.Empty(t, r.listed(durable.Filter{State: durable.Dead}, 5))

	for _, after := range []string{"x", "9", "-1", "1.", "1.!"} {
		_, _, err := r.List(within(t), durable.Filter{}, after, 1)
		require.ErrorIs(t, err, durable.ErrInvalid, after)
	}
	for _, n := range []int{-1, 0, 1001} {
		_, _, err := r.List(within(t), durable.Filter{}, "", n)
		require.ErrorIs(t, err, durable.ErrInvalid)
	}
}

// Pages have what runs first, then what waits, and what is dead at the end.
func pagesOfStates(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	begun, release := make(chan bool, 2), make(chan bool)
	r.handle("dies", func(context.Context, *durable.Attempt) error { return durable.Discard(errors.New("no")) })
	r.handle("runs", tells(begun, release))
	defer close(release)
	first := r.add(durable.Job{Kind: "dies"})[0]
	r.start()
	await(t, "one is dead", func() bool { return r.Stats().Dead == 1 })
	second := r.add(durable.Job{Kind: "dies"})[0]
	await(t, "two are dead", func() bool { return r.Stats().Dead == 2 })
	runs := append(r.add(durable.Job{Kind: "runs"}), r.add(durable.Job{Kind: "runs", After: 50 * time.Millisecond})...)
	<-begun
	<-begun
	waits := append(r.add(durable.Job{Kind: "waits", After: time.Hour}), r.add(durable.Job{Kind: "runs", After: 2 * time.Hour})...)
	want := slices.Concat(runs, waits, []durable.Ref{first, second})
	for n := 1; n <= 7; n++ {
		require.Equal(t, want, r.listed(durable.Filter{}, n), n)
	}
	require.Equal(t, runs, r.listed(durable.Filter{State: durable.Running}, 1))
	require.Equal(t, want[4:], r.listed(durable.Filter{State: durable.Dead}, 1))
	require.Equal(t, append(runs, waits[1]), r.listed(durable.Filter{Kind: "runs"}, 2))
}

// The backlog says what is due and does not run, of which kinds, and since when.
func backlog(t *testing.T, s Store) {
	r := open(t, s.Open(t), durable.WithConcurrency(1))
	b, err := r.Backlog(within(t))
	require.NoError(t, err)
	require.Zero(t, b.Waiting)
	require.Empty(t, b.Kinds)

	begun, release := make(chan bool, 10), make(chan bool)
	r.handle("slow", tells(begun, release)).start()
	defer close(release)
	r.add(durable.Job{Kind: "slow"})
	<-begun
	nobodys := r.add(durable.Job{Kind: "nobody's"})[0]
	time.Sleep(20 * time.Millisecond)
	const jobs = 20
	slow := r.add(times(jobs, durable.Job{Kind: "slow"})...)
	r.add(times(2, durable.Job{Kind: "nobody's"})...)
	r.add(durable.Job{Kind: "slow", After: time.Hour}, durable.Job{Kind: "far", After: 300 * time.Hour})
	// Some that wait for the only place may be claimed, and count as running then. On a busy
	// machine these are several: a job is claimed while its time has not surely come by the
	// engine's clock, and then the next one.
	await(t, "all that is due is counted", func() bool {
		b, err = r.Backlog(within(t))
		require.NoError(t, err)
		claimed := int64(len(r.listed(durable.Filter{State: durable.Running}, 100)))
		return len(b.Kinds) == 2 && b.Kinds[0].Jobs == 3 && b.Kinds[1].Jobs+claimed == 1+jobs
	})
	require.Equal(t, "nobody's", b.Kinds[0].Kind)
	require.Equal(t, nobodys, b.Kinds[0].Oldest)
	require.False(t, b.Kinds[0].Handled)
	require.Equal(t, "slow", b.Kinds[1].Kind)
	require.True(t, b.Kinds[1].Handled)
	require.InDelta(t, b.Kinds[0].Jobs+b.Kinds[1].Jobs+2, b.Waiting, 1, "one may be claimed, or given back, meanwhile")
	for _, o := range b.Kinds {
		info := r.get(o.Oldest)
		require.True(t, info.Due.Equal(o.Due), "%v, %v", info.Due, o.Due)
	}
	require.Contains(t, slow, b.Kinds[1].Oldest)
}

// The workers of all processes are listed with what they hold, until they have gone.
func workers(t *testing.T, s Store) {
	a := open(t, s.Open(t), durable.WithWorkerName("mail_eu-1"))
	all, err := a.Workers(within(t))
	require.NoError(t, err)
	require.Empty(t, all)
	before := time.Now()
	begun, release := make(chan bool, 2), make(chan bool)
	a.handle("long", tells(begun, release)).start()
	b := open(t, s.Open(t)).handle("other", nil).start()
	a.add(durable.Job{Kind: "long"}, durable.Job{Kind: "long"}, durable.Job{Kind: "nobody's"})
	<-begun
	<-begun
	await(t, "both are there", func() bool {
		all, err = b.Workers(within(t))
		require.NoError(t, err)
		return len(all) == 2
	})
	slices.SortFunc(all, func(a, b durable.WorkerInfo) int { return int(b.Jobs - a.Jobs) })
	require.Equal(t, []int64{2, 0}, []int64{all[0].Jobs, all[1].Jobs})
	require.True(t, all[1].Since.IsZero())
	for i, want := range []string{"mail_eu-1 [long] 1", " [other] 1"} {
		require.Equal(t, want, fmt.Sprint(all[i].Label, " ", all[i].Kinds, " ", all[i].AllKinds))
	}
	const clocks = 10 * time.Second // of a server, of this process
	require.WithinRange(t, all[0].Since, before.Add(-clocks), time.Now().Add(clocks))
	for _, w := range all {
		require.NotEmpty(t, w.Name)
		require.Equal(t, os.Getpid(), w.Process)
		require.WithinRange(t, w.Began, before.Add(-clocks), time.Now().Add(clocks))
		require.WithinRange(t, w.Until, before.Add(-clocks), time.Now().Add(max(a.lease, b.lease)+clocks))
	}
	b.drain()
	await(t, "one has gone", func() bool {
		all, err = a.Workers(within(t))
		require.NoError(t, err)
		return len(all) == 1 && all[0].Jobs == 2
	})
	many := []string{"a, \"b\"", "é"}
	for i := range 2998 {
		many = append(many, fmt.Sprintf("k%04d", i))
	}
	slices.Sort(many)
	dead := work(t, s.Open(t), "dead", func(c *driver.WorkConfig) { c.Kinds = driver.NewKindGate(many) })
	require.NoError(t, dead.Heartbeat(within(t)))
	seen := func() bool {
		all, err := a.Workers(within(t))
		require.NoError(t, err)
		i := slices.IndexFunc(all, func(w durable.WorkerInfo) bool { return w.Name == "dead" })
		if i >= 0 && all[i].Until.After(time.Now()) {
			require.Equal(t, many[:driver.ShownKinds], all[i].Kinds)
			require.Equal(t, len(many), all[i].AllKinds)
		}
		return i >= 0
	}
	await(t, "the one that beats once is there", seen)
	await(t, "one that is dead and holds nothing has gone", func() bool { return !seen() })
	close(release)
	a.drain()
	await(t, "both have gone", func() bool {
		all, err = a.Workers(within(t))
		require.NoError(t, err)
		return len(all) == 0
	})
}
