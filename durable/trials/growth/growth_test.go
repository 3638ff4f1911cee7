package growth

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func newModel() model {
	return model{sync: 150 * time.Microsecond, write: 28 * time.Microsecond, few: 12, batchSyncs: 10, most: 1000, ahead: 100 * time.Millisecond}
}

// What a few jobs do can be computed by hand.
func TestByHand(t *testing.T) {
	const us = time.Microsecond
	for _, test := range []struct {
		name             string
		jobs             int
		ahead            time.Duration
		late             []time.Duration
		commits          int
		most, batchSyncs int
	}{
		{"one, claimed early enough", 1, time.Millisecond, []time.Duration{0}, 3, 1000, 10},
		{"one, claimed a little too late", 1, 100 * us, []time.Duration{78 * us}, 3, 1000, 10},
		{"three: the second and the third share a commit", 3, 0, []time.Duration{178 * us, 534 * us, 534 * us}, 6, 1000, 10},
		{"three, one by one: the second claim comes before the first end", 3, 0, []time.Duration{178 * us, 2 * 178 * us, 3 * 178 * us}, 9, 1, 10},
		{"21: the others share ten syncs", 21, 0, append([]time.Duration{178 * us}, slices.Repeat([]time.Duration{178*us + 1500*us + 20*28*us}, 20)...),
			6, 1000, 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newModel()
			m.ahead, m.most, m.batchSyncs = test.ahead, test.most, test.batchSyncs
			s := m.newSimulation(1)
			defer s.wheel.Stop()
			for range test.jobs {
				s.partitions[0].add(time.Second)
			}
			s.wheel.Advance(2 * time.Second)
			require.Equal(t, test.late, s.late)
			require.Equal(t, 3*test.jobs, s.writes)
			require.Equal(t, test.commits, s.commits)
			require.Zero(t, s.wheel.Len())
		})
	}
}

// A queue whose partitions have less to do than they can is on time; one whose have more
// falls behind. So it is with one, and with ten that have ten times as much to do. All
// takes ten times as long as it should, so that few jobs are enough.
func TestKeepsUpOrNot(t *testing.T) {
	m := newModel()
	m.sync, m.write = 10*m.sync, 10*m.write
	for _, partitions := range []int{1, 10} {
		r := m.simulate(partitions, partitions*500, time.Second)
		require.InEpsilon(t, partitions*500, len(r.late), 0.1)
		require.Zero(t, slices.Max(r.late))

		r = m.simulate(partitions, partitions*3000, time.Second)
		require.Greater(t, slices.Max(r.late), time.Second/2)
		require.Greater(t, r.perCommit, 900.0, "commits are as full as they can be")
		require.Less(t, len(r.late), partitions*3000/2, "it does not do what it cannot")
	}
}

// The same gives the same, in the form of the table.
func TestRow(t *testing.T) {
	line := func() string { return row(newModel().simulate(3, 3*2000, time.Second), 3, 2000, 550) }
	require.Regexp(t, `^\| 3 \| 6000 \| 2000 \| 0s \| 0s \| 0s \| \d \| 6.5e\+07 \| 0.1 TB \|$`, line())
	require.Equal(t, line(), line())
}
