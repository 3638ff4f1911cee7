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
	where   string // begins, ends, or a place within the handler
}

// Where a handler begins, and where it has returned.
const (
	begins = "begin of"
	ends   = "end of"
)

func (m moment) compare(o moment) int {
	return cmp.Or(m.at.Compare(o.at), cmp.Compare(m.kind, o.kind), cmp.Compare(m.attempt, o.attempt), cmp.Compare(m.job, o.job))
}

func momentOf(a *durable.Attempt, at time.Time, where string) moment {
	job := fmt.Sprintf("%q %q %q %q", a.Job.Key, a.Job.Lane, a.Schedule, a.Job.Payload)
	return moment{at.UTC(), a.Job.Kind, a.Number, job, where}
}

// crash is a process gone at a moment.
type crash struct {
	moment
	nth   int  // of those that are equal
	index int  // of all, from 0
	any   bool // crash at the moment of the index, whichever it is
	name  string

	met  int         // how many of the moments that are equal to it
	ref  durable.Ref // of the job, once the process has crashed
	hit  moment      // at which it has
	died string      // why the job is dead, if it is
}

// is reports whether the next moment, after so many, is that of the crash.
func (c *crash) is(m moment, before int) bool {
	if c.any {
		return before == c.index
	}
	if c.job == "" {
		m.job = ""
	}
	if m == c.moment {
		c.met++
		return c.met == c.nth
	}
	return false
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
		all = append(all, crash{moment: m, nth: equal[m], index: len(all), name: name})
	}
	return all
}

func (m moment) String() string {
	return fmt.Sprintf("%s %s, attempt %d, at %s", m.where, m.kind, m.attempt, m.at.Format(time.RFC3339Nano))
}
