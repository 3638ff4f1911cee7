package purgatory

import (
	"cmp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// verify checks the invariants of a purgatory. No call may be under way, nor a done.
func (p *Purgatory[K]) verify(t testing.TB) Stats {
	t.Helper()
	links, ops := 0, map[*Op[K]]int{}
	for i := range p.stripes {
		s := &p.stripes[i]
		s.mu.Lock()
		watched := int64(0)
		for key, head := range s.heads.All() {
			n := verifyRing(t, p, key, head, ops)
			require.EqualValues(t, i, p.stripeOf(key))
			watched += int64(n)
			links += n
		}
		require.Equal(t, watched, s.watched)
		require.Zero(t, s.running.Load(), "calls of done")
		s.mu.Unlock()
	}
	for o, n := range ops {
		require.Equal(t, p.stripeOf(o.first.key), o.stripe)
		require.Equal(t, Pending, o.Outcome(), "what has ended is linked")
		require.EqualValues(t, parked, o.state.Load()&^ours, "a flag is left")
		for l := &o.first; l != nil; l = l.more {
			require.NotNil(t, l.next, "a pending operation is not under one of its keys")
			n--
		}
		require.Zero(t, n, "an operation is under a key that is not its own")
	}
	require.Empty(t, p.trampoline.waiting)
	require.False(t, p.trampoline.calling)
	require.Zero(t, p.trampoline.apart.Load())
	st := p.Stats()
	require.EqualValues(t, links, st.Watched)
	require.EqualValues(t, len(ops), st.Pending)
	require.Equal(t, st.Parked, st.Satisfied+st.Expired+st.Canceled+st.Closed+st.Pending, "%+v", st)
	return st
}

func verifyRing[K comparable](t testing.TB, p *Purgatory[K], key K, head *link[K], ops map[*Op[K]]int) (n int) {
	t.Helper()
	for l := head; ; l = l.next {
		require.Same(t, l, l.next.prev)
		require.Equal(t, key, l.key)
		require.NotNil(t, l.op, "the mark of a visit is left")
		require.Same(t, p, l.op.purgatory)
		ops[l.op]++
		n++
		if l.next == head {
			return n
		}
	}
}

// verify checks the invariants of a threshold, and returns the number of its waiters. No
// call may be under way.
func (th *Threshold[V]) verify(t testing.TB) int {
	t.Helper()
	th.mu.Lock()
	defer th.mu.Unlock()
	var ws []*waiter[V]
	var walk func(w *waiter[V], most uint32)
	walk = func(w *waiter[V], most uint32) {
		if w == nil {
			return
		}
		require.LessOrEqual(t, w.priority, most, "not a heap")
		walk(w.left, w.priority)
		ws = append(ws, w)
		walk(w.right, w.priority)
	}
	walk(th.root, 1<<32-1)
	require.True(t, slices.IsSortedFunc(ws, func(a, b *waiter[V]) int {
		return cmp.Or(cmp.Compare(a.v, b.v), cmp.Compare(a.seq, b.seq))
	}), "not a search tree")
	for _, w := range ws {
		require.Greater(t, w.v, th.value, "one that is reached still waits")
		require.Equal(t, Pending, w.outcome(), "what has ended is in the tree")
	}
	require.Zero(t, th.running.Load(), "calls of done")
	st := th.stats
	require.EqualValues(t, len(ws), st.Pending)
	require.Equal(t, st.Parked, st.Satisfied+st.Expired+st.Canceled+st.Closed+st.Pending, "%+v", st)
	return len(ws)
}
