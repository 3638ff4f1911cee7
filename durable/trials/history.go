//go:build unix

package main

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tickwheel/tickwheel/durable"
)

const (
	retained = 'k' // Add has returned the Ref of a job with a Retain
	keptAs   = 'y' // a job is in the history at the end: the Ref, and its state

	retain = 20 * 365 * 24 * time.Hour // longer than all that passes in a fault
)

// mayRetain gives a Retain to half of the jobs without a key: one that is replaced under its key leaves nothing.
func (p *process) mayRetain(job *durable.Job) {
	if p.Retains && job.Key == "" && rand.N(2) == 0 {
		job.Retain = retain
	}
}

// listHistory writes down all jobs that are kept after their end.
func (p *process) listHistory(ctx context.Context) {
	for info, err := range p.q.All(ctx, durable.Filter{State: durable.Dead}) {
		must(err)
		p.l.write(listed, string(info.Ref))
	}
	for _, state := range []durable.State{durable.Done, durable.Canceled} {
		for info, err := range p.q.All(ctx, durable.Filter{State: state}) {
			must(err)
			p.l.write(keptAs, string(info.Ref)+"|"+info.State.String())
		}
	}
}

// kept is what the ledgers say of the history of one job.
type kept struct {
	promised bool
	as       entriesOf[[]string] // the states that a list has shown, by ledger: the process that lists may be started again
}

// settle counts a job that has ended and is not in the history exactly once, as what it ended as, and one that is in
// the history and may not be.
func (k *kept) settle(a *account, p *past) {
	var as []string
	for _, states := range k.as {
		if len(*states) > len(as) {
			as = *states
		}
	}
	if k.promised {
		a.Kept += len(as)
	}
	ended := p.n[finished]+p.n[canceled]+p.n[listed] > 0
	switch records := len(as) + min(p.n[listed], 1); {
	case records > 1, k.promised && ended && records == 0, !k.promised && p.n[accepted] > 0 && len(as) > 0:
		a.Broken.History++
	case len(as) == 1 && as[0] == durable.Done.String() && p.n[finished] == 0:
		a.Broken.History++
	case len(as) == 1 && as[0] == durable.Canceled.String() && p.n[canceled]+p.n[unsure] == 0:
		a.Broken.History++
	}
}
