package jetstream

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/held"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// insertKeys stores the records of some indices, which have keys. If it may wait, it tries again those
// whose job is about to be claimed.
func (is *inserts) insertKeys(ctx context.Context, recs []driver.Record, indices []int, refs []driver.Ref, errs []error) {
	for len(indices) > 0 {
		some := make([]*driver.Record, len(indices))
		for k, i := range indices {
			some[k] = &recs[i]
		}
		stored, failed := is.insertKeyed(ctx, some)
		var again []int
		for k, i := range indices {
			if refs[i], errs[i] = stored[k], failed[k]; errors.Is(errs[i], held.Err) && held.MayWait(ctx) && ctx.Err() == nil {
				again = append(again, i)
			}
		}
		if indices = again; len(again) > 0 {
			is.Wait(ctx, 20*time.Millisecond)
		}
	}
}

// insertKeyed stores records that have a key. Records of different keys share a commit, as ends do: an
// atomic batch for each would cost the server some ten syncs each.
func (is *inserts) insertKeyed(ctx context.Context, recs []*driver.Record) ([]driver.Ref, []error) {
	all := keyedInserts(is, recs)
	leave, err := is.takeTurns(ctx, recs)
	if err == nil {
		defer leave()
		is.storeAll(ctx, all)
	}
	refs, errs := make([]driver.Ref, len(recs)), make([]error, len(recs))
	for _, c := range all {
		for k, i := range c.of {
			if errs[i] = cmp.Or(err, c.errs[k]); errs[i] != nil {
				c.refs[k], c.found[k] = "", ""
			}
			if refs[i] = c.refs[k]; recs[i].Found != nil {
				*recs[i].Found = c.found[k]
			}
		}
	}
	return refs, errs
}

// takeTurns waits until no other call of this process stores records that may replace a job of the same
// keys: else all calls but one would be refused, and begin anew.
func (is *inserts) takeTurns(ctx context.Context, recs []*driver.Record) (leave func(), err error) {
	var turns []uint32
	for _, r := range recs {
		if r.OnKey != driver.KeyRefuse {
			turns = append(turns, crc32.ChecksumIEEE([]byte(r.Key))%uint32(len(is.turns)))
		}
	}
	slices.Sort(turns) // one order for all, or two calls might wait for each other
	turns = slices.Compact(turns)
	taken := 0
	leave = func() {
		for _, turn := range turns[:taken] {
			<-is.turns[turn]
		}
	}
	for _, turn := range turns {
		select {
		case is.turns[turn] <- struct{}{}:
			taken++
		case <-ctx.Done():
			leave()
			return nil, ctx.Err()
		}
	}
	return leave, nil
}

// storeAll takes steps until all records have a result. A step reads what each key is based on, at one
// time, and writes what follows from that in one commit.
func (is *inserts) storeAll(ctx context.Context, all []*keyedInsert) {
	for {
		var left, writing []*keyedInsert
		for _, c := range all {
			if len(c.records()) > 0 {
				left = append(left, c)
			}
		}
		if len(left) == 0 {
			return
		}
		once := sync.OnceValues(func() (stream.Witness, error) { return is.testify(ctx) })
		testify := func(context.Context) (stream.Witness, error) { return once() }
		inParallel(left, func(c *keyedInsert) { c.testify = testify; c.group, c.err = c.plan(ctx) })
		var groups []stream.Group
		for _, c := range left {
			if c.group != nil {
				groups, writing = append(groups, c.group), append(writing, c)
			}
		}
		for k, res := range is.Commit(ctx, groups) {
			if writing[k].err = res.Err; res.Err == nil {
				writing[k].written(ctx)
			}
		}
		is.afterFailures(ctx, left)
	}
}

// afterFailures decides which records are tried anew, as change does.
func (is *inserts) afterFailures(ctx context.Context, all []*keyedInsert) {
	var synced error
	asked := false
	for _, c := range all {
		err := c.err
		if err == nil {
			continue
		}
		conflict := errors.Is(err, stream.ErrConflict) || errors.Is(err, stream.ErrBusy)
		if conflict && !asked {
			asked, synced = true, is.sync(ctx)
		}
		c.tries++
		switch {
		case conflict && synced != nil:
			c.settle(cmp.Or(c.lost, synced))
		case c.tries == maxTries:
			c.settle(cmp.Or(c.lost, fmt.Errorf("%w: gave up after %d conflicting updates of the key", driver.ErrUncertain, maxTries)))
		case conflict:
			c.refused = errors.Is(err, stream.ErrConflict) && !c.fills
		case stream.IsLost(err) && ctx.Err() == nil && is.Conn.Ended.Err() == nil:
			c.lost, c.refused = err, false
		default:
			c.settle(cmp.Or(c.lost, err))
		}
	}
}

// keyedInsert is the records of one key in one call. They are stored in their order. Those that follow
// one another with Replace or Later are one step, in which only the last one is stored: the others were
// replaced before anybody saw them.
type keyedInsert struct {
	p       *inserts
	recs    []*driver.Record
	of      []int // their indices among all records of the call
	settled []bool
	refs    []driver.Ref
	found   []driver.Ref
	errs    []error

	// Of the step that is under way.
	step    []int
	testify func(context.Context) (stream.Witness, error) // once for all keys of a step
	group   stream.Group
	h       holder
	was     stream.Message // the job that the step ends
	fills   bool           // the step fills a job that is due
	err     error
	tries   int
	lost    error  // of a try whose answer was lost
	refused bool   // the last try was
	before  uint64 // the key's sequence at that time

	filled bool // an earlier step of this call has filled the job
}

// keyedInserts sorts records by their keys.
func keyedInserts(is *inserts, recs []*driver.Record) (all []*keyedInsert) {
	byKey := map[string]*keyedInsert{}
	for i, r := range recs {
		c := byKey[r.Key]
		if c == nil {
			c = &keyedInsert{p: is}
			all, byKey[r.Key] = append(all, c), c
		}
		c.recs, c.of = append(c.recs, r), append(c.of, i)
	}
	for _, c := range all {
		n := len(c.recs)
		c.settled, c.refs, c.found, c.errs = make([]bool, n), make([]driver.Ref, n), make([]driver.Ref, n), make([]error, n)
	}
	return all
}

// maxFollowing is how many records are one step: each is a message of an atomic batch.
const maxFollowing = stream.MaxWrites / 2

func mayReplace(r *driver.Record) bool {
	return r.OnKey == driver.KeyReplace || r.OnKey == driver.KeyLater
}

// records returns the indices of the records of the next step; nil if all have a result.
func (c *keyedInsert) records() (step []int) {
	for i, r := range c.recs {
		switch {
		case c.settled[i]:
		case len(step) > 0 && (!mayReplace(r) || len(step) == maxFollowing):
			return step
		default:
			if step = append(step, i); !mayReplace(r) {
				return step
			}
		}
	}
	return step
}

// settle gives the records of the step their result, and begins a new step.
func (c *keyedInsert) settle(err error) {
	for _, i := range c.step {
		c.settled[i], c.errs[i] = true, err
	}
	c.tries, c.lost, c.refused = 0, nil, false
}

// plan returns what stores the records of a step; nil without an error if they have a result.
//
// If a try is refused though nobody has touched the key, it is the bucket that is closed.
func (c *keyedInsert) plan(ctx context.Context) (stream.Group, error) {
	p := c.p
	c.step = c.records()
	h, err := p.keyHolder(ctx, c.recs[0].Key)
	if err != nil {
		return nil, err
	}
	c.before, c.h, c.fills = c.h.seq, h, false
	if err := c.settleKnown(ctx); err != nil || len(c.step) == 0 {
		return nil, err
	}
	last, expired := c.recs[c.step[len(c.step)-1]], h.expired(p.Now())
	switch {
	case h.alive && !expired && (last.OnKey == driver.KeyRefuse || h.s.fate == claimed):
		err := p.stands(ctx, p.readingOf(&h), c.testify)
		if err == nil {
			c.settle(cmp.Or(c.lost, driver.ErrExists))
		}
		return nil, err
	case h.alive && !expired && last.OnKey == driver.KeyKeep:
		if err := p.stands(ctx, p.readingOf(&h), c.testify); err != nil {
			return nil, err
		}
		c.refs[c.step[0]], c.found[c.step[0]] = h.ref, h.ref
		c.settle(nil)
		return nil, nil
	case c.refused && h.seq == c.before && (c.lost != nil || !p.fresh(last)):
		c.settle(errTooLate) // an earlier try may have stored it, and it have run
		return nil, nil
	}
	c.was = stream.Message{}
	switch {
	case expired:
		aside, err := p.asideGroup(ctx, &c.h)
		if err != nil {
			return nil, err
		}
		return c.replace(nil, aside), nil
	case !h.alive:
		return c.replace(nil, nil), nil
	}
	waits, m, ends, err := p.cancelGroup(ctx, &c.h)
	switch {
	case err != nil:
		return nil, err
	case !waits.IsDueFor(last, p.Now()):
		c.was = m
		return c.replace(&waits, ends), nil
	case !c.filled && p.wasFilled(&waits, m):
		c.settle(held.Err)
		return nil, nil
	}
	return c.fill(&waits, m), nil
}

// settleKnown gives those records of the step their result that an earlier try or call has stored. What
// was stored may have ended since.
func (c *keyedInsert) settleKnown(ctx context.Context) error {
	var left []int
	for _, i := range c.step {
		r, is, isErr := c.recs[i], false, error(nil)
		if c.h.job.id == r.ID {
			c.refs[i], is = c.h.ref, true
		} else if c.lost != nil || mayReplace(r) || r.OnKey == driver.KeyKeep && c.h.alive {
			var ref driver.Ref
			if ref, is, isErr = c.p.isStored(ctx, r); is {
				c.refs[i] = ref
			}
			if is && c.lost == nil {
				c.found[i] = ""
			}
		}
		switch {
		case is:
			c.settled[i], c.errs[i] = true, isErr
		case isErr != nil:
			return isErr
		default:
			left = append(left, i)
		}
	}
	c.step = left
	return nil
}

// replace stores the last record of a step, takes the key over from its holder, and ends that if it
// waits. The status of each other record says that it was replaced. If MaxWait has changed
// the bucket of the record, a forward to where it is tells isStored so.
func (c *keyedInsert) replace(waits *driver.Record, g stream.Group) stream.Group {
	p, found := c.p, driver.Ref("")
	if waits != nil {
		found = c.h.ref
	}
	var next driver.Record
	for k, i := range c.step {
		r := c.recs[i]
		next = *r
		if waits != nil {
			next.Succeed(waits)
		}
		if c.refs[i], c.found[i] = p.refOf(r), found; k == len(c.step)-1 {
			c.refs[i] = p.refOf(&next)
			break
		}
		if b := p.nearOf(r.At); p.openFor(r.At) == b {
			end := status{fate: canceled, token: rand.Text()}
			g = append(g, stream.Write{Subject: p.fateSubject(location{id: r.ID, bucket: b}), Data: end.encode(), Last: stream.Seq(0)})
		}
		before := next
		waits, found = &before, c.refs[i]
	}
	r, stores := c.recs[c.step[len(c.step)-1]], p.storeKeyed(&next)
	if next.Due.Before(next.At) { // by a signal
		bucket := p.openFor(next.Due)
		stores = p.records.elsewhere(&next, bucket, true)
		stores[0].Last = stream.Seq(0)
		// The first version has never been there, though its bucket is open. Without a status it would be taken to
		// wait once the forward is gone.
		first := status{fate: moved, token: rand.Text(), bucket: bucket}
		g = append(g, stream.Write{Subject: p.fateSubject(location{id: next.ID, bucket: p.nearOf(next.At)}), Data: first.encode(), Last: stream.Seq(0)})
	}
	if bucket := p.nearOf(next.At); bucket != p.nearOf(r.At) {
		if len(stores) == 1 {
			known := p.records.forwardWrite(&next, bucket)
			known.TTL = graveTTL
			stores = stream.Group{known, stores[0]}
		}
		stores[0].Last = stream.Seq(0)
	}
	return slices.Concat(g, stores, stream.Group{p.keyWriteAfter(&next, c.h.seq, c.h.after)})
}

// fill stores the last record of a step as the next version of a job that is due. A forward of each record to the job tells isStored so.
func (c *keyedInsert) fill(waits *driver.Record, m stream.Message) stream.Group {
	p, now := c.p, c.p.Now()
	next, s := *c.recs[c.step[len(c.step)-1]], c.h.s
	next.GoInto(waits)
	s.attempt = 0
	bucket := max(p.openFor(next.Due), p.openFor(now)) // where workers look first
	g := p.records.versionGroup(&next, m.Data, c.h.at, s, rand.Text(), bucket, now)
	for _, i := range c.step {
		c.refs[i], c.found[i] = c.h.ref, c.h.ref
		g = append(g, stream.Write{Subject: p.forward(c.recs[i].ID), Data: []byte(c.h.ref), Last: stream.Seq(0), Rollup: true, TTL: graveTTL})
	}
	c.fills = true
	return append(g, p.keyWriteAfter(&next, c.h.seq, c.h.after)) // it says when the job expires
}

// fillEvery is how long a job that is due has to be claimed before the next record goes into it: a
// claim of an older version is refused. It is long enough for a worker that has a slot.
const fillEvery = time.Second

// wasFilled reports whether a record has gone into a job that is due less than fillEvery ago.
func (is *inserts) wasFilled(r *driver.Record, m stream.Message) bool {
	at := is.ServerTime(m.Time)
	return r.Version > 0 && at.After(r.Due) && is.Now().Sub(at).Abs() < fillEvery
}

// written ends a step whose commit has come about.
func (c *keyedInsert) written(ctx context.Context) {
	p, fills := c.p, c.fills
	if c.was.Seq > 0 && c.was.Subject == p.farSubject(p.farOf(c.h.at.bucket)) {
		p.Remove(ctx, c.was) // as in leaveFar
	}
	c.settle(nil)
	c.filled = c.filled || fills
}

// isStored reports whether an earlier call has stored a record, though it does not have its key
// any more, and with which Ref. To store it again would end the job that has the key now. With MaxWait nobody knows
// when the stored record is due, and so its Ref; and after half a minute, whether it was stored:
// the forward that replace and fill write lasts for a minute.
func (is *inserts) isStored(ctx context.Context, r *driver.Record) (driver.Ref, bool, error) {
	ref, uncertain := is.refOf(r), error(nil)
	if r.MaxWait > 0 {
		if uncertain = errTooLate; !is.Now().Before(r.Born.Add(graveTTL / 2)) {
			return ref, true, uncertain
		}
	}
	forward, fate := is.forward(r.ID), is.fateSubject(location{id: r.ID, bucket: is.nearOf(r.At)})
	last, err := is.LastOf(ctx, forward, fate)
	if err != nil {
		return "", false, err
	}
	for _, subject := range []string{forward, fate} {
		m, err := last(subject)
		if err != nil {
			return "", false, err
		}
		if _, err := parseRef(driver.Ref(m.Data), is.salt, is.of); err == nil {
			return driver.Ref(m.Data), true, nil // the job that it has gone into
		}
		if m.Seq > 0 {
			return ref, true, uncertain
		}
	}
	return "", false, nil
}

// storeKeyed returns what stores a record for the first time with its key, whose condition is
// that of both. An earlier try may have stored it.
func (is *inserts) storeKeyed(r *driver.Record) stream.Group {
	in := is.insertion(r)
	if in.displaced {
		in.group[0].Last = nil
	}
	in.guard(&is.subjects)
	return in.group
}
