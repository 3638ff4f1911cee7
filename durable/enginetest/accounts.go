package enginetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
)

// ledger is what is known of the jobs of a test, by Ref.
type ledger struct {
	mu       sync.Mutex
	accepted map[durable.Ref]bool
	canceled map[durable.Ref]bool
	unsure   map[durable.Ref]bool // the answer of Cancel was lost: it may have been canceled
	done     map[durable.Ref]int  // handlers that returned nil
	begun    map[durable.Ref]int
	asked    map[durable.Ref][]string // what users asked of a job, and the answers
	lost     int64                    // ends that came after another worker had taken over: that job is done twice
}

// accounts does everything at once for a while: two workers, adds, cancels, reschedules,
// failures, keys, redrives, a worker that comes and goes. At the end
//
//	accepted = done + canceled + dead + waiting + held
//
// but for those of which Cancel was uncertain, which may be canceled or not.
// no canceled job has begun an attempt after, and no job was done twice but where a lease was
// lost.
func accounts(t *testing.T, s Store) {
	l := &ledger{accepted: map[durable.Ref]bool{}, canceled: map[durable.Ref]bool{}, unsure: map[durable.Ref]bool{}, done: map[durable.Ref]int{}, begun: map[durable.Ref]int{}, asked: map[durable.Ref][]string{}}
	start := func() *rig {
		return open(t, s.Open(t), durable.WithConcurrency(16),
			durable.WithBackoff(func(int) time.Duration { return rand.N(600 * time.Millisecond) })).
			handle(kind, l.handler(t)).start()
	}
	a, b := start(), start()
	var wg sync.WaitGroup
	end := time.Now().Add(4 * time.Second)
	for i := range 3 {
		wg.Go(func() { l.user(t, a, i, end) })
	}
	wg.Go(func() {
		for time.Now().Before(end) {
			c := start()
			time.Sleep(700 * time.Millisecond)
			c.close()
			l.lose(c)
		}
	})
	wg.Wait()
	await(t, "what is near has ended", func() bool {
		return !slices.ContainsFunc(a.matching(durable.Filter{}), func(info durable.Info) bool {
			return info.State != durable.Dead && time.Until(info.Due) < time.Minute
		})
	})
	b.drain()
	a.drain()
	l.lose(a)
	l.lose(b)
	dead, waiting := 0, 0
	missing := maps.Clone(l.accepted)
	for _, info := range a.matching(durable.Filter{}) {
		l.mu.Lock()
		require.True(t, l.accepted[info.Ref], "nobody has added %+v", info)
		require.False(t, l.canceled[info.Ref], "canceled, and there: %+v", info)
		require.Zero(t, l.done[info.Ref], "done, and there: %+v", info)
		l.mu.Unlock()
		delete(missing, info.Ref)
		if info.State == durable.Dead {
			dead++
		} else {
			waiting++
		}
	}
	twice := int64(0)
	for ref, n := range l.done {
		twice += int64(n - 1)
		require.LessOrEqual(t, twice, l.lost, "done twice: %s", ref)
		require.False(t, l.canceled[ref])
	}
	uncertain := 0
	for ref := range missing {
		switch {
		case l.done[ref] > 0 || l.canceled[ref]:
		case l.unsure[ref]:
			uncertain++
		default:
			info, err := a.Get(within(t), ref)
			t.Errorf("%s is gone: it has begun %d times; asked of it: %q; Get: %+v, %v", ref, l.begun[ref], l.asked[ref], info, err)
		}
	}
	t.Logf("%d accepted = %d done + %d canceled + %d dead + %d waiting + %d canceled without an answer",
		len(l.accepted), len(l.done), len(l.canceled), dead, waiting, uncertain)
	require.Equal(t, len(l.accepted), len(l.done)+len(l.canceled)+dead+waiting+uncertain)
	require.NotEmpty(t, l.done)
	require.True(t, len(l.canceled) > 0 || len(l.accepted) < 100, "none was canceled")
}

// lose notes what a worker has lost, on a machine that stood still for a lease.
func (l *ledger) lose(r *rig) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost += r.Stats().LeaseLost
}

func (l *ledger) handler(t *testing.T) func(context.Context, *durable.Attempt) error {
	return func(_ context.Context, a *durable.Attempt) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.canceled[a.Ref] {
			t.Errorf("%s: canceled, and attempt %d begins", a.Ref, a.Number)
		}
		l.begun[a.Ref]++
		switch rand.N(6) {
		case 0:
			return errTest
		case 1:
			if rand.N(4) == 0 {
				return durable.Discard(errTest)
			}
		}
		l.done[a.Ref]++
		return nil
	}
}

// note keeps what was asked of a job.
func (l *ledger) note(ref durable.Ref, question string, answer ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked[ref] = append(l.asked[ref], question+" "+fmt.Sprint(answer...))
}

// user adds and changes jobs until the end.
func (l *ledger) user(t *testing.T, r *rig, id int, end time.Time) {
	ctx := within(t)
	expected := []error{durable.ErrNotFound, durable.ErrExists, durable.ErrUncertain}
	var mine []durable.Ref
	for n := 0; n < 10 || time.Now().Before(end); n++ { // enough also where each takes a second
		breathe()
		job := durable.Job{Kind: kind, After: rand.N(3 * time.Second), MaxAttempts: 1 + rand.N(4)}
		switch rand.N(10) {
		case 0:
			job.After = time.Hour
		case 1:
			job.Key = fmt.Sprint("key", rand.N(5))
		}
		// The job may have begun before Add returns.
		added, err := r.Add(ctx, job)
		if err != nil && !errors.Is(err, durable.ErrExists) {
			t.Error(err)
		}
		if added != "" {
			mine = append(mine, added)
			l.mu.Lock()
			l.accepted[added] = true
			l.mu.Unlock()
		}
		if len(mine) == 0 {
			continue
		}
		ref := mine[rand.N(len(mine))]
		switch rand.N(5) {
		case 0:
			ok, err := r.Cancel(ctx, ref)
			l.note(ref, "Cancel", ok, err)
			if err != nil && !errors.Is(err, durable.ErrUncertain) {
				t.Error(err)
			}
			l.mu.Lock()
			if ok {
				l.canceled[ref] = true
			} else if err != nil {
				l.unsure[ref] = true
			}
			l.mu.Unlock()
		case 1:
			_, ok, err := r.Reschedule(ctx, ref, time.Now().Add(rand.N(2*time.Second)))
			l.note(ref, "Reschedule", ok, err)
			if err != nil && !errors.Is(err, durable.ErrUncertain) {
				t.Error(err)
			}
		case 2:
			err := r.Redrive(ctx, ref)
			l.note(ref, "Redrive", err)
			if err != nil && !slices.ContainsFunc(expected, func(e error) bool { return errors.Is(err, e) }) {
				t.Error(err)
			}
		}
		time.Sleep(rand.N(8 * time.Millisecond))
	}
}
