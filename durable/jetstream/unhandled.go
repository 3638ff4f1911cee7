package jetstream

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// A job that no worker can run is in a queue that has no consumer, and costs nothing while it
// waits. Its bucket is not closed. A look now and then finds those that were canceled meanwhile.

const (
	mostUnhandled = 100 // kinds that are named
	sweepEvery    = 5 * time.Minute
)

// endedNobodys returns up to where the jobs of a kind have ended that no worker can run, 0
// if one of them waits. It looks once in a while.
func (f *feed) endedNobodys(ctx context.Context, at spot) (last uint64, err error) {
	if time.Since(f.swept[at]) < sweepEvery {
		return 0, nil
	}
	maps.DeleteFunc(f.swept, func(_ spot, when time.Time) bool { return time.Since(when) > sweepEvery })
	f.swept[at] = time.Now()
	waits := false
	err = f.pages(ctx, f.queueSubject(at.bucket, at.queue), 1, time.Time{}, func(page []stored) (bool, error) {
		recs, fates, err := f.fates(ctx, page)
		for i := range recs {
			if waits = !fates[i].fate.final(); waits {
				return false, nil
			}
			if err := f.tidy(ctx, &recs[i], f.placeOf(page[i].Subject, &recs[i])); err != nil {
				return false, err
			}
			last = page[i].Seq
		}
		return true, err
	})
	if waits || err != nil {
		return 0, err
	}
	return last, nil
}

// fates returns the records of a page, and what became of them.
func (p *part) fates(ctx context.Context, page []stored) ([]driver.Record, []status, error) {
	recs, all, subjects := make([]driver.Record, len(page)), make([]status, len(page)), make([]string, len(page))
	for i, m := range page {
		var err error
		if recs[i], err = decode(m.Data); err != nil {
			return nil, nil, err
		}
		subjects[i] = p.fateSubject(p.placeOf(m.Subject, &recs[i]))
	}
	found, err := p.lasts(ctx, subjects)
	if err != nil {
		return nil, nil, err
	}
	for i, s := range subjects {
		if m, ok := found[s]; ok {
			if all[i], err = decodeStatus(m.Data, m.Seq); err != nil {
				return nil, nil, err
			}
		}
	}
	return recs, all, nil
}

// Unhandled reads jobs that have been due for at least one poll of a Fetch.
func (e *engine) Unhandled(ctx context.Context) ([]driver.Unhandled, error) {
	oldest := map[string]driver.Unhandled{}
	for _, p := range e.parts {
		if err := p.unhandled(ctx, oldest); err != nil {
			return nil, err
		}
	}
	all := make([]driver.Unhandled, 0, len(oldest))
	for _, u := range oldest {
		all = append(all, u)
	}
	slices.SortFunc(all, func(a, b driver.Unhandled) int {
		return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.Kind, b.Kind))
	})
	return all[:min(len(all), mostUnhandled)], nil
}

// unhandled adds a partition's. Of each queue the first bucket that has some tells which
// job is longest due. While a worker lives, what it cannot run is in the queues of one kind.
func (p *part) unhandled(ctx context.Context, oldest map[string]driver.Unhandled) error {
	near, err := p.contents(ctx, "q.>")
	if err != nil {
		return err
	}
	now := p.now()
	handled, err := p.handled(ctx, now)
	if err != nil {
		return err
	}
	done := map[string]bool{}
	for _, b := range sorted(near) {
		if p.start(b).After(now) || len(done) >= mostUnhandled {
			break
		}
		for queue := range near[b] {
			if handled[queue] || done[queue] || !isToken(queue) && len(handled) > 0 {
				continue
			}
			found, err := p.oldestOf(ctx, p.queueSubject(b, queue), now, handled, oldest)
			if err != nil {
				return err
			}
			done[queue] = found && queue != ""
		}
	}
	return nil
}

// oldestOf finds the jobs of a subject that are longest due, in as far as the first pages
// that have some tell, and reports whether there is one.
func (p *part) oldestOf(ctx context.Context, subject string, now time.Time, handled map[string]bool, oldest map[string]driver.Unhandled) (found bool, err error) {
	err = p.pages(ctx, subject, 1, time.Time{}, func(page []stored) (bool, error) {
		recs, fates, err := p.fates(ctx, page)
		for i, r := range recs {
			kind := r.Kind
			if fates[i].fate.final() || fates[i].fate == claimed || r.Due.After(now) || handled[tokenOf(kind)] {
				continue
			}
			found = true
			if o, ok := oldest[kind]; !ok || r.Due.Before(o.Due) {
				oldest[kind] = driver.Unhandled{Kind: kind, Oldest: p.refOf(&r), Due: r.Due}
			}
		}
		return !found, err
	})
	if errors.Is(err, errStop) {
		err = nil
	}
	return found, err
}

// handled returns the tokens of the kinds that workers can run which live.
func (p *part) handled(ctx context.Context, now time.Time) (map[string]bool, error) {
	lives, beats, err := p.lives(ctx)
	if err != nil {
		return nil, err
	}
	tokens := map[string]bool{}
	for subject, l := range lives {
		if p.serverTime(beats[subject].Time).Add(l.Lease).After(now) {
			for _, token := range l.Kinds {
				tokens[token] = true
			}
		}
	}
	return tokens, nil
}
