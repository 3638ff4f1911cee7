package timingwheel

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// verify checks the invariants of all families, and returns how many are in the tables.
func (s *parentWatches) verify(t *testing.T) (count int) {
	rs := s.registries()
	for i := range rs.all {
		r := &rs.all[i]
		r.mu.Lock()
		found := r.table.verify(t)
		for _, f := range found {
			require.Same(t, r, f.home)
			require.True(t, f.open)
			require.True(t, f.shared)
			require.NotNil(t, f.members, "a family that all have left")
			require.Nil(t, f.members.prev)
			for m := f.members; m != nil; m = m.next {
				if m.next != nil {
					require.Same(t, m, m.next.prev)
				}
			}
		}
		if f := r.spare; f != nil {
			require.False(t, f.open)
			require.Nil(t, f.members)
			require.Nil(t, f.stop, "the spare family holds a parent")
			require.NotContains(t, found, f)
		}
		r.mu.Unlock()
		count += len(found)
	}
	return count
}

func (t *familyTable) verify(test *testing.T) (found []*parentWatch) {
	for i, f := range t.chains {
		for ; f != nil; f = f.chain {
			require.Same(test, &t.chains[i], t.chain(f.hash))
			found = append(found, f)
		}
	}
	require.Len(test, found, t.count)
	require.LessOrEqual(test, t.count, len(t.chains), "long chains")
	require.LessOrEqual(test, len(t.chains), max(minChains, 8*t.count), "memory that is kept")
	return found
}

// The table is compared with a map, through growing and shrinking.
func TestFamilyTableIsLikeAMap(t *testing.T) {
	for seed := range uint64(unlessShort(20, 5)) {
		r := rand.New(rand.NewPCG(seed, 0))
		var table familyTable
		model := map[<-chan struct{}]*parentWatch{}
		var known []*parentWatch
		for step := range 3000 {
			grow := step/500%2 == 0
			if r.IntN(4) > 0 == grow {
				f := &parentWatch{done: make(chan struct{}), hash: r.Uint64() &^ (r.Uint64() << 34)}
				table.insert(f)
				model[f.done] = f
				known = append(known, f)
			} else if len(model) > 0 {
				i := r.IntN(len(known))
				f := known[i]
				known[i] = known[len(known)-1]
				known = known[:len(known)-1]
				table.remove(f)
				delete(model, f.done)
				require.Nil(t, table.find(f.hash, f.done))
				require.Nil(t, f.chain)
			}
			if len(known) > 0 {
				f := known[r.IntN(len(known))]
				require.Same(t, model[f.done], table.find(f.hash, f.done))
			}
			if step%10 == 0 {
				require.Len(t, table.verify(t), len(model))
			}
		}
	}
}

// Children come and go below parents that end, or live on, while deadlines come: each
// ends, and no family is left.
func TestFamiliesAtOnce(t *testing.T) {
	w := New(WithTick(10 * time.Microsecond))
	defer w.Stop()
	parents := make([]context.Context, 12)
	cancels := make([]context.CancelFunc, len(parents))
	for i := range parents {
		parents[i], cancels[i] = context.WithCancel(context.Background())
	}
	forever, cancelForever := context.WithCancel(context.Background())
	defer cancelForever()
	var children sync.WaitGroup
	for g := range 4 {
		children.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			var mine []context.Context
			var cancelMine []context.CancelFunc
			for range 3000 {
				parent := forever
				if r.IntN(3) > 0 {
					parent = parents[r.IntN(len(parents))]
				}
				d := time.Hour
				if r.IntN(4) == 0 {
					d = time.Duration(r.IntN(200)) * time.Microsecond
				}
				ctx, cancel := w.WithTimeout(parent, d)
				if r.IntN(2) == 0 {
					ctx.Done()
				}
				mine, cancelMine = append(mine, ctx), append(cancelMine, cancel)
				if r.IntN(2) == 0 {
					cancelMine[r.IntN(len(mine))]()
				}
			}
			for i, cancel := range cancelMine {
				cancel()
				<-mine[i].Done()
			}
		})
	}
	for _, cancel := range cancels {
		time.Sleep(time.Millisecond)
		cancel()
		w.parents().verify(t)
	}
	children.Wait()
	for deadline := time.Now().Add(30 * time.Second); w.Len() > 0 || w.parents().verify(t) > 0; {
		require.True(t, time.Now().Before(deadline), "waited in vain")
		time.Sleep(100 * time.Microsecond)
	}
}

// The children of one parent are one family, whatever values lie between, and those of
// others and of outsiders are not of it.
func TestFamilyIsOfOneCanceler(t *testing.T) {
	w := New()
	defer w.Stop()
	parent, cancelParent := context.WithCancel(context.Background())
	defer cancelParent()
	timed, cancelTimed := context.WithTimeout(parent, 2*time.Hour)
	defer cancelTimed()
	ours, cancelOurs := w.WithTimeout(parent, 2*time.Hour)
	defer cancelOurs()
	type wrapped struct{ context.Context }
	for _, c := range []struct {
		parent   context.Context
		families int
	}{
		{parent, 1}, // that of ours
		{context.WithValue(wrapped{parent}, depth(0), 1), 1},
		{timed, 2},
		{context.WithValue(timed, depth(0), 1), 2},
		{ours, 3},
		{wrapped{ours}, 3},
		{&outsider{parent, make(chan struct{})}, 3},
	} {
		_, cancel := w.WithTimeout(c.parent, time.Hour)
		defer cancel()
		require.Equal(t, c.families, w.parents().verify(t))
	}
	cancelParent()
	for deadline := time.Now().Add(30 * time.Second); w.parents().verify(t) > 0; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "waited in vain")
	}
}

// A notice that has come, and has not begun, would end whatever is in the family then.
func TestFamilyIsNotUsedAgainOnceItsNoticeHasCome(t *testing.T) {
	for _, inTime := range []bool{true, false} {
		r := new(registry)
		m := &member{end: func() {}}
		f, _ := r.join(m, 1, make(chan struct{}), true)
		f.stop = func() bool { return inTime }
		m.leave()
		require.Equal(t, inTime, r.spare == f)
	}
}

func TestSizeOfAContext(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(deadlineCtx{}), uintptr(176), "a size class of the allocator")
}
