package enginetest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// likeNames are names of which an engine might take two for one, or one for a pattern: it makes subjects,
// keys, files and channels from them.
var likeNames = []string{
	" ", "a", "A", "a ", " a", "a b", "*", ">", ".", "..", "a.*", "a.>", "a.b", "a/b", `a\b`, "a_b", "a%", "a%00", `"a"`, "'a'", "$JS", "{a}", "${a}",
	"-", "_", "\u00fc", "u\u0308", "\u212a", "K", "every", "every/x", "-- a", "\U0001f600",
}

// Any printable text is a name, and no two are the same: of kinds, keys, lanes, schedules, limits and Meta.
func names(t *testing.T, s Store) {
	r := open(t, s.Open(t), steady)
	var mu sync.Mutex
	ran := map[string]string{} // of kinds: which key and lane ran
	for _, kind := range append(likeNames, strings.Repeat("k", driver.MaxKind)) {
		r.Handle(kind, func(_ context.Context, a *durable.Attempt) error {
			mu.Lock()
			defer mu.Unlock()
			ran[kind] += a.Job.Kind + a.Job.Key + a.Job.Lane + a.Job.Meta[a.Job.Lane]
			return nil
		})
	}
	var jobs []durable.Job
	for _, name := range likeNames {
		jobs = append(jobs, durable.Job{Kind: name, Key: "of " + name, Lane: name, Meta: map[string]string{name: name}, After: time.Hour})
	}
	refs := r.add(jobs...)
	for i, name := range likeNames {
		require.Equal(t, refs[i], r.lookup("of "+name).Ref, name)
		for _, f := range []durable.Filter{{Kind: name}, {Lane: name}, {Meta: map[string]string{name: name}}} {
			found := r.matching(f)
			require.Len(t, found, 1, "%+q", f)
			require.Equal(t, refs[i], found[0].Ref)
		}
		r.limit(name, durable.Limit{Kind: name, PerLane: true, Running: 1})
		r.schedule(name, "@every 1h", durable.Job{Kind: name})
	}
	for _, name := range likeNames {
		r.pause(durable.Pausable{Kind: name, Lane: name})
		r.resume(durable.Pausable{Kind: name, Lane: name})
	}
	stored := 0
	for l, err := range r.Limits(within(t)) {
		r.ok(err)
		require.Equal(t, l.Name, l.Kind)
		stored++
	}
	require.Equal(t, len(likeNames), stored)
	all := r.schedules()
	require.Len(t, all, len(likeNames))
	for _, name := range likeNames {
		require.Equal(t, name, all[name].Job.Kind)
		r.unlimit(name)
		r.ok(r.DeleteSchedule(within(t), name))
		require.ErrorIs(t, r.DeleteSchedule(within(t), name), durable.ErrNotFound)
	}
	r.start()
	for i, name := range likeNames {
		r.reschedule(refs[i], r.now(), true)
		require.Eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return ran[name] == name+"of "+name+name+name
		}, patience, time.Millisecond, "%q", name)
	}
}

// What is no name is refused at the border, where it is given: nothing of it comes to the engine, whose
// error would end Run.
func badNames(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	nothing := func(context.Context, *durable.Attempt) error { return nil }
	for says, name := range map[string]string{
		"empty": "", "not printable": "a\x00", "is not printable": "\xff", `"\n" is not printable`: "\n", "129 bytes, more than 128": strings.Repeat("k", driver.MaxKind+1),
	} {
		for what, f := range map[string]func(){
			"Handle": func() { r.Handle(name, nothing) },
			"HandleJSON": func() {
				durable.HandleJSON(r.Queue, name, func(context.Context, *durable.Attempt, int) error { return nil })
			},
			"WithKindConcurrency": func() { durable.Open(within(t), unusable{}, durable.WithKindConcurrency(name, 1)) },
		} {
			require.Contains(t, panics(t, what, f), says, what)
		}
	}
	for says, err := range map[string]error{
		"the limit's name is not printable":               r.SetLimit(within(t), "\xff", durable.Limit{Running: 1}),
		"of 1 to 128 bytes":                               r.SetLimit(within(t), strings.Repeat("l", 129), durable.Limit{Running: 1}),
		"the lane has 129":                                r.Pause(within(t), durable.Pausable{Lane: strings.Repeat("l", 129)}),
		"the schedule's name \"a\\x00\" is not printable": r.SetSchedule(within(t), "a\x00", "@daily", durable.Job{Kind: kind}),
		"the key has 257":                                 r.SetSchedule(within(t), strings.Repeat("s", 251), "@daily", durable.Job{Kind: kind}), // "every/" and the name
	} {
		require.ErrorIs(t, err, durable.ErrInvalid, says)
		require.ErrorContains(t, err, says)
	}
	require.ErrorIs(t, r.DeleteLimit(within(t), "a\x00"), durable.ErrNotFound)
	require.ErrorIs(t, r.Resume(within(t), durable.Pausable{Kind: "a\x00"}), durable.ErrNotFound)
	for _, name := range []string{"", "a\x00", "\xff", strings.Repeat("w", 1000)} {
		_, err := r.engine.Work(within(t), driver.WorkConfig{Name: name, Kinds: driver.NewKindSet([]string{kind}), Lease: shortLease(), Ahead: time.Second, Retention: time.Hour})
		require.ErrorIs(t, err, durable.ErrInvalid, "%.20q", name)
	}
	r.handle(kind, nil).start()
	r.add(durable.Job{Kind: kind})
	r.awaitRuns(1)
}

// unusable is an engine that nothing is asked of.
type unusable struct{ driver.Engine }

// panics returns the text of f's panic.
func panics(t *testing.T, what string, f func()) (text string) {
	defer func() { text = fmt.Sprint(recover()) }()
	f()
	t.Errorf("%s does not panic", what)
	return ""
}
