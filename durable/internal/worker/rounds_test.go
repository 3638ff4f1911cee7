package worker

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
)

func TestInterval(t *testing.T) {
	for ahead, want := range map[time.Duration]time.Duration{
		minClaimAhead:          25 * time.Millisecond,
		99 * time.Millisecond:  25 * time.Millisecond,
		100 * time.Millisecond: 50 * time.Millisecond,
		maxClaimAhead:          100 * time.Millisecond,
	} {
		w := &Worker{ahead: ahead}
		require.Equal(t, want, w.interval(), ahead)
	}
}

// Jobs that are due one after the other are claimed together, each of them between the
// whole lead and half of it ahead.
func TestJobsAreClaimedInRounds(t *testing.T) {
	for _, ahead := range []time.Duration{minClaimAhead, 130 * time.Millisecond, maxClaimAhead} {
		synctest.Test(t, func(t *testing.T) {
			w, first, _ := woken(t, &answering{beats: []error{nil}}, time.Now())
			w.ahead = ahead
			const jobs = 500
			from := time.Now().Add(time.Second)
			for i := range jobs {
				h := *first
				h.Ref, h.Record.Due = driver.Ref(fmt.Sprint(i)), from.Add(time.Duration(i)*time.Millisecond)
				require.True(t, w.admit(t.Context(), &h))
			}
			rounds, taken := 0, 0
			for taken < jobs {
				time.Sleep(time.Millisecond)
				synctest.Wait()
				batch := w.takeClaimable()
				for _, task := range batch {
					lead := time.Until(task.held.Record.Due)
					require.LessOrEqual(t, lead, ahead)
					require.GreaterOrEqual(t, lead, ahead/2-2*time.Millisecond) // of ticks, of the wheel and here
					delete(w.tasks, task.held.Ref)                              // it is not claimed here
				}
				if len(batch) > 0 {
					rounds, taken = rounds+1, taken+len(batch)
				}
			}
			require.LessOrEqual(t, rounds, int(jobs*time.Millisecond/w.interval())+2)
			require.Empty(t, w.rounds)
		})
	}
}
