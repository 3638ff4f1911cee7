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

// A record with a key is stored with the key's message in one commit, and with the end of the job
// that waited under the key, if it replaces that. Each of these messages has its condition. So two
// inserts of one key, or an insert and a claim, never both succeed by the same reading of the key.
//
// A try reads the key, plans a commit, and writes it. After a conflict, and after a lost answer,
// the next try reads all anew; it finds by the record's ID what an earlier try has stored
// (settleKnown).

// keyedRecord is a record that has a key, and its result. A record without a result is not settled.
type keyedRecord struct {
	*driver.Record
	index   int // Among the records of the call of insert.
	settled bool
	ref     driver.Ref
	with    driver.Ref // The job that waited under the key, for Found; "" without one.
	err     error
}

// mayReplace reports whether the record may end or change the job that waits under its key.
func (r *keyedRecord) mayReplace() bool {
	return r.OnKey == driver.KeyReplace || r.OnKey == driver.KeyLater
}

// insertKeys stores records that have keys. If it may wait, it tries those again whose job is about
// to be claimed. They wait without the others, and no turn is held meanwhile.
//
// The wait is short: a claim that is under way takes some milliseconds, and a job that nobody
// claims takes the record after fillEvery.
func (is *inserts) insertKeys(ctx context.Context, recs []*keyedRecord) {
	for len(recs) > 0 {
		is.insertKeyed(ctx, recs)
		recs = slices.DeleteFunc(slices.Clone(recs), func(r *keyedRecord) bool {
			return !errors.Is(r.err, held.Err) || !held.MayWait(ctx) || ctx.Err() != nil
		})
		if len(recs) > 0 {
			is.Wait(ctx, 20*time.Millisecond)
		}
	}
}

// insertKeyed stores records that have a key, and sets their results. Records of different keys
// share a commit, as ends do: an atomic batch for each would cost the server some ten syncs each.
//
// A record with an error has neither a Ref nor a job that waited: a try may have set them before it
// failed.
func (is *inserts) insertKeyed(ctx context.Context, recs []*keyedRecord) {
	leave, err := is.takeTurns(ctx, recs)
	defer leave()
	if err == nil {
		is.storeAll(ctx, keyedInserts(is, recs))
	}
	for _, r := range recs {
		if r.err = cmp.Or(err, r.err); r.err != nil {
			r.ref, r.with = "", ""
		}
		if r.Found != nil {
			*r.Found = r.with
		}
	}
}

// takeTurns waits until no other call of this process stores records that may replace a job of the
// same keys: else all calls but one would be refused, and begin anew. A record with Refuse takes no
// turn: of many one is stored, and the others find it at their next try.
//
// The turns are sorted, in one order for all calls, or two calls might wait for each other. The
// caller calls leave, also after an error, to give back the turns that were taken.
func (is *inserts) takeTurns(ctx context.Context, recs []*keyedRecord) (leave func(), err error) {
	var turns []uint32
	for _, r := range recs {
		if r.OnKey != driver.KeyRefuse {
			turns = append(turns, crc32.ChecksumIEEE([]byte(r.Key))%uint32(len(is.turns)))
		}
	}
	slices.Sort(turns)
	turns, taken := slices.Compact(turns), 0
	leave = func() {
		for _, turn := range turns[:taken] {
			<-is.turns[turn]
		}
	}
	for ; taken < len(turns); taken++ {
		select {
		case is.turns[turns[taken]] <- struct{}{}:
		case <-ctx.Done():
			return leave, ctx.Err()
		}
	}
	return leave, nil
}

// storeAll takes steps until all records have a result. A step reads what each key is based on, at
// one time, and writes what follows from that in one commit. Steps of one key follow one another,
// and those of different keys share the commit. So without conflicts the number of commits is that
// of the key with the most steps.
//
// Answers that write nothing share one witness for each round (stands.go). It ends, since each
// round settles the step of a key, or counts a try of it, up to maxTries.
func (is *inserts) storeAll(ctx context.Context, all []*keyedInsert) {
	for {
		all = slices.DeleteFunc(all, func(c *keyedInsert) bool { return len(c.next()) == 0 })
		if len(all) == 0 {
			return
		}
		once := sync.OnceValues(func() (stream.Witness, error) { return is.testify(ctx) })
		testify := func(context.Context) (stream.Witness, error) { return once() }
		inParallel(all, func(c *keyedInsert) { c.testify = testify; c.group, c.err = c.plan(ctx) })
		var groups []stream.Group
		var writing []*keyedInsert
		for _, c := range all {
			if c.group != nil {
				groups, writing = append(groups, c.group), append(writing, c)
			}
		}
		for k, res := range is.Commit(ctx, groups) {
			if writing[k].err = res.Err; res.Err == nil {
				writing[k].written(ctx)
			}
		}
		is.afterFailures(ctx, all)
	}
}

// afterFailures decides which steps are tried anew, as change does for one message: after a
// conflict, or when the answer was lost and the caller still waits. All conflicts of a round share
// one reading of the clock and the watermark.
//
// If a later try fails, the lost answer is the error, since nobody knows whether that try has
// stored the records.
func (is *inserts) afterFailures(ctx context.Context, all []*keyedInsert) {
	synced := sync.OnceValue(func() error { return is.sync(ctx) })
	for _, c := range all {
		if c.err == nil {
			continue
		}
		c.tries++
		conflict := errors.Is(c.err, stream.ErrConflict) || errors.Is(c.err, stream.ErrBusy)
		switch {
		case conflict && synced() != nil:
			c.settle(cmp.Or(c.lost, synced()))
		case c.tries == maxTries:
			c.settle(cmp.Or(c.lost, fmt.Errorf("%w: gave up after %d conflicting updates of the key", driver.ErrUncertain, maxTries)))
		case conflict:
			c.refused = errors.Is(c.err, stream.ErrConflict) && !c.fills
		case stream.IsLost(c.err) && ctx.Err() == nil && is.Conn.Ended.Err() == nil:
			c.lost, c.refused = c.err, false
		default:
			c.settle(cmp.Or(c.lost, c.err))
		}
	}
}

// keyedInsert is the records of one key in one call. They are stored in their order. Those that
// follow one another with Replace or Later are one step, in which only the last one is stored, or the
// first one that is due: the others were replaced before anybody saw them.
//
// One goroutine at a time has it: plan runs in parallel with that of other keys, and shares only
// testify.
type keyedInsert struct {
	p    *inserts
	recs []*keyedRecord

	// The step that is under way.
	step    []*keyedRecord
	testify func(context.Context) (stream.Witness, error) // One witness for all keys of a round.
	group   stream.Group
	h       holder
	backs   int64          // Of before the step was read.
	was     stream.Message // The job that the step ends.
	fills   bool           // The step fills a job that is due.
	err     error
	tries   int
	lost    error // Of a try whose answer was lost.
	refused bool  // The last try was refused, and h is the holder as of that.

	filled bool // An earlier step of this call has filled the job.
}

// keyedInserts sorts records by their keys, and forgets the results of an earlier try.
func keyedInserts(is *inserts, recs []*keyedRecord) (all []*keyedInsert) {
	byKey := map[string]*keyedInsert{}
	for _, r := range recs {
		c := byKey[r.Key]
		if c == nil {
			c = &keyedInsert{p: is}
			all, byKey[r.Key] = append(all, c), c
		}
		r.settled, r.err = false, nil
		c.recs = append(c.recs, r)
	}
	return all
}

// maxFollowing is how many records are one step: each is a message of an atomic batch, which also
// has the messages of the job and of its key.
const maxFollowing = stream.MaxWrites / 2

// next returns the records of the next step; nil if all have a result. A record that may not
// replace is a step by itself: its result depends on the job that the step before has left under
// the key.
func (c *keyedInsert) next() (step []*keyedRecord) {
	for _, r := range c.recs {
		switch {
		case r.settled:
		case len(step) > 0 && (!r.mayReplace() || len(step) == maxFollowing):
			return step
		default:
			if step = append(step, r); !r.mayReplace() {
				return step
			}
		}
	}
	return step
}

// settle gives the records of the step their result, and begins a new step. Their Refs are of plan;
// with an error insertKeyed clears them.
func (c *keyedInsert) settle(err error) {
	for _, r := range c.step {
		r.settled, r.err = true, err
	}
	c.tries, c.lost, c.refused = 0, nil, false
}

// plan returns the messages that store the records of a step; nil without an error if they have a
// result.
//
// If a try is refused though nobody has touched the key, it is the bucket that is closed. Then the
// record is stored elsewhere only if it is fresh and no answer was lost: else an earlier try may
// have stored it, and the job may have run before the bucket was closed.
//
// It costs the reading of the key and of its job's status, and of the job's record if that is to be
// replaced.
//
// A job that waits and is due is never ended: the record goes into it, so that pushing it back
// cannot keep it from running for ever. One that has just been filled is left alone for a while,
// for a claim to win.
func (c *keyedInsert) plan(ctx context.Context) (stream.Group, error) {
	p := c.p
	c.step, c.backs = c.next(), p.Backs()
	h, err := p.keyHolder(ctx, c.recs[0].Key)
	if err != nil {
		return nil, err
	}
	before := c.h.seq
	c.h, c.was, c.fills = h, stream.Message{}, false
	if err := c.settleKnown(ctx); err != nil || len(c.step) == 0 {
		return nil, err
	}
	last, expired := c.step[len(c.step)-1], h.expired(p.Now())
	exists := last.OnKey == driver.KeyRefuse || h.s.fate == claimed
	switch {
	case h.alive && !expired && (exists || last.OnKey == driver.KeyKeep):
		if err := p.stands(ctx, p.readingOf(&h), c.testify); err != nil {
			return nil, err
		}
		if exists {
			c.settle(cmp.Or(c.lost, driver.ErrExists))
		} else {
			last.ref, last.with = h.ref, h.ref
			c.settle(nil)
		}
		return nil, nil
	case c.refused && h.seq == before && (c.lost != nil || !p.fresh(last.Record)):
		c.settle(errTooLate)
		return nil, nil
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
	case !waits.IsDueFor(last.Record, p.Now()):
		c.was = m
		return c.replace(&waits, ends), nil
	case !c.filled && p.wasFilled(&waits, m):
		c.settle(held.Err)
		return nil, nil
	}
	return c.fill(&waits, m), nil
}

// settleKnown gives those records of the step their result that an earlier try or call has stored.
// Such a job may have ended since.
//
// Only records that may have been stored are looked for: a first Add with Refuse, or with Keep
// under a free key, reads nothing here. Its own condition on the key tells.
func (c *keyedInsert) settleKnown(ctx context.Context) error {
	for _, r := range c.step {
		if c.h.job.id == r.ID {
			r.ref, r.settled = c.h.ref, true
		} else if c.lost != nil || r.mayReplace() || r.OnKey == driver.KeyKeep && c.h.alive {
			ref, is, err := c.p.isStored(ctx, r.Record)
			if err != nil && !is {
				return err
			}
			if r.ref, r.settled, r.err = ref, is, err; c.lost == nil {
				r.with = "" // nobody knows it any more, or plan sets it
			}
		}
	}
	c.step = slices.DeleteFunc(c.step, func(r *keyedRecord) bool { return r.settled })
	return nil
}

// replace stores the last record of a step, takes the key over from its holder, and ends that job
// if it waits: waits is its record, and g ends it, or lays it aside. Succeed carries over what the
// new job has of the old one, record by record.
//
// The status of each other record of the step says that it was replaced: without it a repeated Add
// would store that record once more, and end the newer job. If MaxWait has changed the bucket of
// the last record, a forward to where it is tells isStored so.
//
// A record that is due ends the step: those after it go into it.
func (c *keyedInsert) replace(waits *driver.Record, g stream.Group) stream.Group {
	p, with := c.p, driver.Ref("")
	if waits != nil {
		with = c.h.ref
	}
	var next driver.Record
	for k, r := range c.step {
		next = *r.Record
		if waits != nil {
			next.Succeed(waits)
		}
		if r.ref, r.with = p.refOf(r.Record), with; k == len(c.step)-1 || next.IsDueFor(c.step[k+1].Record, p.Now()) {
			r.ref, c.step = p.refOf(&next), c.step[:k+1]
			break
		}
		if b := p.nearOf(r.At); p.openFor(r.At) == b {
			end := status{fate: canceled, token: rand.Text()}
			g = append(g, stream.Write{Subject: p.statusSubject(location{id: r.ID, bucket: b}), Data: end.encode(), Last: stream.Seq(0)})
		}
		before := next
		waits, with = &before, r.ref
	}
	last, stores := c.step[len(c.step)-1], p.storeKeyed(&next)
	if next.Due.Before(next.At) { // by a signal
		bucket := p.openFor(next.Due)
		stores = p.records.elsewhere(&next, bucket, true)
		stores[0].Last = stream.Seq(0)
		// The first version has never been there, though its bucket is open. Without a status it
		// would be taken to wait once the forward is gone.
		first := status{fate: moved, token: rand.Text(), bucket: bucket}
		g = append(g, stream.Write{Subject: p.statusSubject(location{id: next.ID, bucket: p.nearOf(next.At)}), Data: first.encode(), Last: stream.Seq(0)})
	}
	if bucket := p.nearOf(next.At); bucket != p.nearOf(last.At) {
		if len(stores) == 1 {
			known := p.records.forwardWrite(&next, bucket)
			known.TTL = graveTTL
			stores = stream.Group{known, stores[0]}
		}
		stores[0].Last = stream.Seq(0)
	}
	return slices.Concat(g, stores, stream.Group{p.keyWriteAfter(&next, c.h.seq, c.h.after)})
}

// fill stores the last record of a step as the next version of a job that is due. A forward of each
// record to the job tells isStored so: the job's own messages have its ID, not theirs.
//
// The version before ends as moved, so a claim of it that is under way is refused.
func (c *keyedInsert) fill(waits *driver.Record, m stream.Message) stream.Group {
	p, now := c.p, c.p.Now()
	next, s := *c.step[len(c.step)-1].Record, c.h.s
	next.GoInto(waits)
	// The record begins anew, though the job was tried; and it is stored where workers look first.
	s.attempt = 0
	bucket := max(p.openFor(next.Due), p.openFor(now))
	g := p.records.versionGroup(&next, m.Data, c.h.at, s, rand.Text(), bucket, now)
	for _, r := range c.step {
		r.ref, r.with = c.h.ref, c.h.ref
		g = append(g, stream.Write{Subject: p.forward(r.ID), Data: []byte(c.h.ref), Last: stream.Seq(0), Rollup: true, TTL: graveTTL})
	}
	c.fills = true
	return append(g, p.keyWriteAfter(&next, c.h.seq, c.h.after)) // it says when the job expires
}

// written ends a step whose commit has come about. A job that was replaced in a far bucket is
// removed, as in leaveFar: else its payload would stay until that bucket is moved.
func (c *keyedInsert) written(ctx context.Context) {
	if c.was.Seq > 0 && c.was.Subject == c.p.farSubject(c.p.farOf(c.h.at.bucket)) {
		c.p.Remove(ctx, c.backs, c.was)
	}
	c.settle(nil)
	c.filled = c.filled || c.fills
}

// fillEvery is how long a job that is due has to be claimed before the next record goes into it: a
// claim of an older version is refused. It is long enough for a worker that has a slot. Without it
// a fast sequence of Adds would keep each version from being claimed.
const fillEvery = time.Second

// wasFilled reports whether a record has gone into a job that is due less than fillEvery ago, by
// the time of its message. A version that was stored before it was due is a retry or a move, and
// was not filled.
func (is *inserts) wasFilled(r *driver.Record, m stream.Message) bool {
	at := is.ServerTime(m.Time)
	return r.Version > 0 && at.After(r.Due) && is.Now().Sub(at).Abs() < fillEvery
}

// isStored reports whether an earlier call has stored a record, though it does not have its key any
// more, and with which Ref. To store it again would end the job that has the key now.
//
// Three messages tell: a forward to a job that it has gone into, which has the Ref of that; a
// forward of its own; or the status of its first version. Each was written in the commit that
// stored the record, or later.
//
// With MaxWait nobody knows when the stored record is due, and so its Ref; and after half a minute,
// whether it was stored: the forward that replace and fill write lasts for a minute.
func (is *inserts) isStored(ctx context.Context, r *driver.Record) (driver.Ref, bool, error) {
	ref, uncertain := is.refOf(r), error(nil)
	if r.MaxWait > 0 {
		if uncertain = errTooLate; !is.Now().Before(r.Born.Add(graveTTL / 2)) {
			return ref, true, uncertain
		}
	}
	forward, fate := is.forward(r.ID), is.statusSubject(location{id: r.ID, bucket: is.nearOf(r.At)})
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

// storeKeyed returns the messages that store a record for the first time with its key, whose
// condition is that of both. An earlier try may have stored it, so the bucket must be open on
// several replicas, too: a copy in a closed bucket would run once more.
func (is *inserts) storeKeyed(r *driver.Record) stream.Group {
	in := is.insertion(r)
	if in.displaced {
		in.group[0].Last = nil
	}
	in.guard(&is.subjects)
	return in.group
}
