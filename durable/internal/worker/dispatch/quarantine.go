package dispatch

import (
	"cmp"
	"slices"
)

// How a job begins depends on what its claim has to say if it never ends.
//
// Most are claimed ahead of their time, so that they begin on time. If their worker dies,
// nobody knows which of them had begun. So such a claim counts no attempt, but the job is
// a suspect from then on: one of them may have killed the worker.
//
// A suspect, and a job that is on its last attempt, is claimed exactly: when its time has
// come and a slot for its handler is reserved, so that its claim is its begin. If that
// never ends, the attempt counts. It costs the job a commit's time of lateness, and its
// slot that long. No job costs another write.
//
// Suspects are in quarantine: few run at a time, those with fewer crashes first: after two crashes
// one at a time. So a job that kills its process does that beside few others soon, and then beside
// none, and these lose two or three attempts at most. Fresh jobs have all other slots.

// trialSlots is how many suspects may be on trial at a time, if one of them has so many
// crashes. On trial is one from its claim on, for a lease at most: a job that has run
// for so long is no more likely to kill the process than others, and long handlers must
// not take turns.
func trialSlots(crashes, concurrency int) int {
	if crashes > 1 {
		return 1
	}
	return max(1, concurrency/16)
}

// mayTry reports whether a suspect may go on trial.
func (s *slots) mayTry(j *Job) bool {
	most := j.crashes
	for _, other := range s.onTrial {
		most = max(most, other.crashes)
	}
	return len(s.onTrial) < trialSlots(most, s.c.Concurrency)
}

// endTrial gives a suspect's slot on trial to the next.
func (s *slots) endTrial(j *Job) {
	if j.crashes > 0 {
		s.onTrial = slices.DeleteFunc(s.onTrial, func(other *Job) bool { return other == j })
	}
}

// byCrashes is the order of suspects: fewer crashes first, then the longest due.
func byCrashes(a, b *Job) int {
	return cmp.Or(cmp.Compare(a.crashes, b.crashes), a.Delivery.Record.Due.Compare(b.Delivery.Record.Due))
}

// quarantine queues a suspect for its trial. The suspect passes no gates: few run at a time, and the
// engine decides.
func (s *slots) quarantine(j *Job) {
	k := j.kind.queues
	i, _ := slices.BinarySearchFunc(k.suspects, j, byCrashes)
	k.suspects = slices.Insert(k.suspects, i, j)
	s.held.set(j, queued)
	s.held.activate(k)
}

// vacate gives back the slot that is reserved for a job, if there is one, and its slot on trial.
func (s *slots) vacate(j *Job) {
	if j.reserved {
		j.reserved = false
		s.reserved--
		j.kind.queues.running--
	}
	s.endTrial(j)
	s.agenda.recheck = true
}
