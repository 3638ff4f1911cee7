package crashtest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tickwheel/tickwheel/durable"
)

// moment is when a process may crash. Refs differ in each run, so the rest of an attempt has to
// tell it from others.
type moment struct {
	at      time.Time
	kind    string
	attempt int
	job     string // its key, lane, schedule and payload; "": any
	end     bool   // of the handler; else its begin
}

func (m moment) compare(o moment) int {
	return cmp.Or(m.at.Compare(o.at), cmp.Compare(m.kind, o.kind), cmp.Compare(m.attempt, o.attempt), cmp.Compare(m.job, o.job))
}

func momentOf(a *durable.Attempt, at time.Time, end bool) moment {
	job := fmt.Sprintf("%q %q %q %q", a.Job.Key, a.Job.Lane, a.Schedule, a.Job.Payload)
	return moment{at.UTC(), a.Job.Kind, a.Number, job, end}
}

// crash is a process gone at a moment.
type crash struct {
	moment
	nth  int // of those that are equal
	name string

	ref  durable.Ref // of the job, once the process has crashed
	died string      // why the job is dead, if it is
}

// number returns a crash for each moment, in the order of time. Jobs that are due at the same time
// run in any order: byJob tells them apart and sorts them, else only their number does.
func number(moments []moment, byJob bool) (all []crash) {
	moments = slices.Clone(moments)
	if byJob {
		slices.SortStableFunc(moments, moment.compare)
	}
	equal, named := map[moment]int{}, map[string]int{}
	for _, m := range moments {
		if !byJob {
			m.job = ""
		}
		equal[m]++
		name := m.String()
		if named[name]++; named[name] > 1 {
			name = fmt.Sprintf("%s, #%d", name, named[name])
		}
		all = append(all, crash{moment: m, nth: equal[m], name: name})
	}
	return all
}

func (m moment) String() string {
	what := "begin"
	if m.end {
		what = "end"
	}
	return fmt.Sprintf("%s of %s, attempt %d, at %s", what, m.kind, m.attempt, m.at.Format(time.RFC3339Nano))
}
