package memory

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/internal/once"
)

// Store keeps jobs in a map. Make one with [New]. Its methods may be called by several
// goroutines at once.
//
// There is one lock, and a job's fields say all about it. A scan of the whole map answers
// every question.
type Store struct {
	clock *Clock // nil: the time that passes

	mu      sync.Mutex
	jobs    map[durable.Ref]*entry
	over    map[durable.Ref]bool // those that have ended, so that an insert that is repeated is known
	series  map[string]durable.Series
	rules   *durable.Rules
	counted map[durable.Place]*durable.Counter
	workers map[string]*worker // that are there, and those that died without Close
	changed chan struct{}      // closed, and made anew, when a Feed may have something to do
	ended   chan struct{}      // the same, when a job is due no more
}

type entry struct {
	rec   durable.Record
	state durable.State
	by    string    // the worker that it is handed out to, or that has claimed it
	since time.Time // when it was handed out
	claim int       // counts claims and what ends them, so that an old one is recognized
	exact bool      // that claim counts as an attempt though it never ends
	until time.Time // how long a dead one is kept

	places []durable.Place // that the claim has
	ending bool            // CancelRunning was called for the claim
}

type engine struct {
	m      *Store
	place  once.Place
	closed context.Context
	close  context.CancelFunc
}

type worker struct {
	e    *engine
	c    durable.WorkConfig
	beat time.Time
}

// handle is what Held.Handle holds.
type handle struct {
	claim int // 0: not claimed
}

// New returns an empty Store on a clock that is set by hand. With nil its time is that of
// package time, which in a testing/synctest bubble is the bubble's.
func New(c *Clock) *Store {
	m := &Store{
		clock: c, jobs: map[durable.Ref]*entry{}, over: map[durable.Ref]bool{}, series: map[string]durable.Series{}, counted: map[durable.Place]*durable.Counter{},
		workers: map[string]*worker{},
		changed: make(chan struct{}), ended: make(chan struct{}),
	}
	if c != nil {
		c.add(m)
	}
	return m
}

// now is the time by which jobs are due. Leases are of the process, and by package time.
func (m *Store) now() time.Time {
	if m.clock == nil {
		return time.Now()
	}
	return m.clock.Now()
}

// change wakes the Feeds. m.mu is held.
func (m *Store) change() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// end tells Advance that a job is due no more. m.mu is held.
func (m *Store) end() {
	close(m.ended)
	m.ended = make(chan struct{})
}

// Open returns an engine on the Store, for one [durable.Queue]. There may be several, as for
// several processes.
func (m *Store) Open() durable.Engine {
	ctx, cancel := context.WithCancel(context.Background())
	return &engine{m: m, closed: ctx, close: cancel}
}

// Restart does what the restart of a server would: it forgets to whom it has handed out what
// waits.
func (m *Store) Restart() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, j := range m.jobs {
		if j.state == durable.Waiting {
			j.by = ""
		}
	}
	m.change()
}

// PlaceOfQueue is for durable.Open.
func (e *engine) PlaceOfQueue() *once.Place { return &e.place }

func (e *engine) Close() error {
	e.close()
	return nil
}

func (e *engine) Now(context.Context) (time.Time, time.Duration, error) {
	return e.m.now(), 0, e.open()
}

// Manual is for package durable: it returns what tells the time if that is set by hand, or
// nil. A Queue then reads no clock of its own, and waits for no commit to be shared.
func (e *engine) Manual() func() time.Time {
	if e.m.clock == nil {
		return nil
	}
	return e.m.clock.Now
}

func (e *engine) open() error {
	if e.closed.Err() != nil {
		return durable.ErrClosed
	}
	return nil
}

func refOf(r *durable.Record) durable.Ref {
	return durable.Ref(r.ID + "." + strconv.FormatInt(r.Born.UnixNano(), 36))
}

func (e *engine) Insert(_ context.Context, recs []durable.Record) ([]durable.Ref, []error) {
	refs, errs := make([]durable.Ref, len(recs)), make([]error, len(recs))
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	for i, r := range recs {
		if errs[i] = e.open(); errs[i] == nil {
			refs[i], errs[i] = e.m.insert(r)
		}
	}
	return refs, errs
}

func (m *Store) insert(r durable.Record) (durable.Ref, error) {
	ref := refOf(&r)
	if m.jobs[ref] != nil || m.over[ref] {
		return ref, nil
	}
	if r.Job.Key != "" && m.holder(r.Job.Key) != "" {
		return "", durable.ErrExists
	}
	r.Job.Payload, r.Job.Meta = slices.Clone(r.Job.Payload), maps.Clone(r.Job.Meta)
	m.jobs[ref] = &entry{rec: r, state: durable.Waiting, claim: 1}
	m.change()
	return ref, nil
}

// holder returns the job that has the key, or "".
func (m *Store) holder(key string) durable.Ref {
	for ref, j := range m.jobs {
		if j.rec.Job.Key == key && (j.state == durable.Waiting || j.state == durable.Running) {
			return ref
		}
	}
	return ""
}

// find returns a job, and whether there was one. One that has ended has no state.
func (m *Store) find(ref durable.Ref) (*entry, bool) {
	j := m.jobs[ref]
	if j == nil {
		return &entry{}, m.over[ref]
	}
	if j.state == durable.Dead && !m.now().Before(j.until) {
		m.forget(ref, j)
	}
	return j, true
}

// forget ends a job. One that has ended is no job that each look would pass. m.mu is held.
func (m *Store) forget(ref durable.Ref, j *entry) {
	j.state = 0
	delete(m.jobs, ref)
	m.over[ref] = true
	m.end()
}

func (e *engine) Cancel(_ context.Context, refs []durable.Ref) ([]bool, []error) {
	oks, errs := make([]bool, len(refs)), make([]error, len(refs))
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	for i, ref := range refs {
		j, ok := e.m.find(ref)
		switch {
		case e.open() != nil:
			errs[i] = durable.ErrClosed
		case !ok:
			errs[i] = durable.ErrNotFound
		case j.state == durable.Waiting:
			e.m.forget(ref, j)
			oks[i] = true
		}
	}
	return oks, errs
}

func (e *engine) Move(_ context.Context, ref durable.Ref, at time.Time) (bool, error) {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	j, ok := e.m.find(ref)
	switch {
	case e.open() != nil:
		return false, durable.ErrClosed
	case !ok:
		return false, durable.ErrNotFound
	case j.state != durable.Waiting:
		return false, nil
	}
	j.rec.Due, j.by = at, ""
	j.rec.Version++ // what was handed out is gone
	e.m.change()
	e.m.end()
	return true, nil
}

func (e *engine) Redrive(_ context.Context, ref durable.Ref, at time.Time) error {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	j, ok := e.m.find(ref)
	switch {
	case e.open() != nil:
		return durable.ErrClosed
	case !ok || j.state != durable.Dead:
		return durable.ErrNotFound
	case j.rec.Job.Key != "" && e.m.holder(j.rec.Job.Key) != "":
		return durable.ErrExists
	}
	j.rec.Due, j.rec.Attempt, j.rec.Crashes, j.state, j.by = at, 0, 0, durable.Waiting, ""
	j.rec.Job.Expires = time.Time{}
	j.rec.Version++
	e.m.change()
	return nil
}

func (e *engine) Delete(_ context.Context, ref durable.Ref) error {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	j, ok := e.m.find(ref)
	switch {
	case e.open() != nil:
		return durable.ErrClosed
	case !ok || j.state != durable.Dead:
		return durable.ErrNotFound
	}
	e.m.forget(ref, j)
	return nil
}

func (e *engine) Lookup(_ context.Context, key string) (durable.Ref, error) {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	if err := e.open(); err != nil {
		return "", err
	}
	if ref := e.m.holder(key); ref != "" {
		return ref, nil
	}
	return "", durable.ErrNotFound
}

func (j *entry) info(ref durable.Ref) durable.Info {
	attempt := min(j.rec.Attempt, j.rec.Job.MaxAttempts)
	return durable.Info{Ref: ref, Job: j.rec.Job, State: j.state, Attempt: attempt, Due: j.rec.Due, LastError: j.rec.LastError, Errors: j.rec.Errors}
}

func (e *engine) Get(_ context.Context, ref durable.Ref) (durable.Info, error) {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	if err := e.open(); err != nil {
		return durable.Info{}, err
	}
	j, ok := e.m.find(ref)
	if !ok || j.state == 0 {
		return durable.Info{}, durable.ErrNotFound
	}
	return j.info(ref), nil
}

func (e *engine) Scan(_ context.Context, f durable.Filter) iter.Seq2[durable.Info, error] {
	return func(yield func(durable.Info, error) bool) {
		e.m.mu.Lock()
		refs := slices.Collect(maps.Keys(e.m.jobs))
		e.m.mu.Unlock()
		for _, ref := range refs {
			e.m.mu.Lock()
			j, _ := e.m.find(ref)
			info := j.info(ref)
			e.m.mu.Unlock()
			if info.State != 0 && f.Match(info) && !yield(info, nil) {
				return
			}
		}
	}
}

func (e *engine) SetSeries(_ context.Context, was int64, s durable.Series, replace durable.Replace) error {
	m := e.m
	m.mu.Lock()
	defer m.mu.Unlock()
	there := m.series[s.Name]
	switch {
	case e.open() != nil:
		return durable.ErrClosed
	case there.Revision == s.Revision:
		return nil // an earlier try
	case there.Revision != was:
		return durable.ErrChanged
	}
	if s.Plan != "" {
		s.Last = there.Last
	}
	ref := m.holder(durable.SeriesKey(s.Name))
	j := m.jobs[ref]
	var waits, next *durable.Record
	if j != nil {
		if attempt, _ := j.begun(); j.state != durable.Waiting || attempt > 0 {
			m.series[s.Name] = s
			return nil
		}
		waits = &j.rec
	}
	if replace != nil {
		var err error
		if next, err = replace(there.Last, waits); err != nil {
			return err
		}
	}
	m.series[s.Name] = s
	if next == waits {
		return nil
	}
	if waits != nil {
		m.forget(ref, j)
	}
	if next == nil {
		return nil
	}
	_, err := m.insert(*next)
	return err
}

// endOccurrence notes that an occurrence has ended, if its schedule is as it was.
func (m *Store) endOccurrence(j *entry, o *durable.Outcome) error {
	if !j.rec.IsOccurrence() || o.End == durable.Again {
		return nil
	}
	s := m.series[j.rec.Series]
	if s.Revision != o.Revision {
		return durable.ErrChanged
	}
	if !o.Occurred.IsZero() && s.Revision != 0 {
		s.Last = o.Occurred
		m.series[j.rec.Series] = s
	}
	return nil
}

func (e *engine) Series(_ context.Context, name string) (durable.Series, error) {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	if err := e.open(); err != nil {
		return durable.Series{}, err
	}
	s, ok := e.m.series[name]
	if !ok {
		return s, durable.ErrNotFound
	}
	return s, nil
}

func (e *engine) AllSeries(context.Context) iter.Seq2[durable.Series, error] {
	return func(yield func(durable.Series, error) bool) {
		e.m.mu.Lock()
		all, err := slices.Collect(maps.Values(e.m.series)), e.open()
		e.m.mu.Unlock()
		if err != nil {
			yield(durable.Series{}, err)
			return
		}
		for _, s := range all {
			if s.Plan != "" && !yield(s, nil) {
				return
			}
		}
	}
}

func (e *engine) Work(_ context.Context, c durable.WorkConfig) (durable.Worker, error) {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	if err := e.open(); err != nil {
		return nil, err
	}
	if e.m.workers[c.Name] != nil {
		return nil, fmt.Errorf("%w: there is a worker %q", durable.ErrInvalid, c.Name)
	}
	w := &worker{e: e, c: c, beat: time.Now()}
	e.m.workers[c.Name] = w
	return w, nil
}

// lease returns for how long a worker's lease is not over.
func (m *Store) lease(name string) time.Duration {
	w := m.workers[name]
	if w == nil {
		return 0
	}
	return time.Until(w.beat.Add(w.c.Lease))
}

func (w *worker) Feed(ctx context.Context, give func([]*durable.Held)) error {
	for {
		open, opened := w.c.Kinds.Open()
		batch, changed := w.due(open)
		if w.c.Looked != nil {
			w.c.Looked()
		}
		if len(batch) > 0 {
			give(batch)
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.e.closed.Done():
			return durable.ErrClosed
		case <-changed:
		case <-opened:
		case <-time.After(min(w.c.Ahead, w.c.Lease) / 2):
		}
	}
}

// handOut is how many jobs are handed out at one time, so that a kind that is shut by that
// is so soon.
const handOut = 1000

// due hands out what of the kinds is due soon and nobody has.
func (w *worker) due(kinds []string) ([]*durable.Held, chan struct{}) {
	m := w.e.m
	m.mu.Lock()
	defer m.mu.Unlock()
	now, soon := time.Now(), m.now().Add(w.c.Ahead)
	if m.clock != nil {
		soon = m.now().Add(1) // nobody can wait for a time that is set by hand
	}
	var refs []durable.Ref
	for ref, j := range m.jobs {
		_, open := slices.BinarySearch(kinds, j.rec.Job.Kind)
		waits := j.state == durable.Waiting && (j.by == "" || now.Sub(j.since) >= w.c.Lease)
		orphan := j.state == durable.Running && j.by != w.c.Name && m.lease(j.by) <= 0 && now.Sub(j.since) >= w.c.Lease
		if open && (waits || orphan) && j.rec.Due.Before(soon) {
			refs = append(refs, ref)
		}
	}
	slices.SortFunc(refs, func(a, b durable.Ref) int { return m.jobs[a].rec.Due.Compare(m.jobs[b].rec.Due) })
	var batch []*durable.Held
	for _, ref := range refs[:min(len(refs), handOut)] {
		j := m.jobs[ref]
		j.since = now
		if j.state == durable.Waiting {
			j.by = w.c.Name
		}
		rec := j.rec
		rec.Attempt, rec.Crashes = j.begun()
		batch = append(batch, &durable.Held{Ref: ref, Record: rec, Handle: handle{}})
	}
	return batch, m.changed
}

func (e *engine) Unhandled(context.Context) ([]durable.Unhandled, error) {
	m := e.m
	m.mu.Lock()
	defer m.mu.Unlock()
	oldest := map[string]durable.Unhandled{}
	for ref, j := range m.jobs {
		kind := j.rec.Job.Kind
		o, ok := oldest[kind]
		if j.state == durable.Waiting && !j.rec.Due.After(m.now()) && (!ok || j.rec.Due.Before(o.Due)) {
			oldest[kind] = durable.Unhandled{Kind: kind, Oldest: ref, Due: j.rec.Due}
		}
	}
	maps.DeleteFunc(oldest, func(kind string, _ durable.Unhandled) bool { return m.handled(kind) })
	return slices.SortedFunc(maps.Values(oldest), func(a, b durable.Unhandled) int { return a.Due.Compare(b.Due) }), e.open()
}

// handled reports whether a worker that lives has a handler for the kind.
func (m *Store) handled(kind string) bool {
	for name, w := range m.workers {
		if m.lease(name) > 0 && w.c.Kinds.Has(kind) {
			return true
		}
	}
	return false
}

func (w *worker) Claim(_ context.Context, held []*durable.Held) []durable.Verdict {
	m := w.e.m
	m.mu.Lock()
	defer m.mu.Unlock()
	verdicts := make([]durable.Verdict, len(held))
	for i, h := range held {
		verdicts[i] = w.claim(h)
	}
	return verdicts
}

func (w *worker) claim(h *durable.Held) durable.Verdict {
	m := w.e.m
	j, ok := m.find(h.Ref)
	if w.e.open() != nil {
		return durable.Verdict{Claimed: durable.Later, After: time.Second}
	}
	if !ok || (j.state != durable.Waiting && j.state != durable.Running) || j.rec.Version != h.Record.Version {
		return durable.Verdict{Claimed: durable.Gone}
	}
	if j.state == durable.Running && j.by == w.c.Name { // the answer was lost
		j.exact = j.exact || h.Exact
		h.Handle = handle{claim: j.claim}
		limits, _ := m.rules.Covering(j.rec.Job.Kind, j.rec.Job.Lane)
		return durable.Verdict{Claimed: durable.Mine, Attempt: j.rec.Attempt, At: durable.TokenBy(limits, m.now())}
	}
	if j.state == durable.Running {
		if left := m.lease(j.by); left > 0 {
			return durable.Verdict{Claimed: durable.Later, After: left}
		}
	}
	begun, crashes := j.begun()
	if crashes > 0 && !h.Exact {
		return durable.Verdict{Claimed: durable.Suspect, Crashes: crashes}
	}
	v := w.take(j, h)
	if v.Claimed != durable.Mine {
		return v
	}
	j.state, j.by, j.exact, j.ending = durable.Running, w.c.Name, h.Exact, false
	j.rec.Attempt, j.rec.Crashes = min(begun, j.rec.Job.MaxAttempts)+1, crashes
	j.claim++
	h.Handle = handle{claim: j.claim}
	return durable.Verdict{Claimed: durable.Mine, Attempt: j.rec.Attempt, At: v.At}
}

// take takes for a claim what the rules ask for, or says what it has to wait for.
func (w *worker) take(j *entry, h *durable.Held) durable.Verdict {
	m, lane := w.e.m, j.rec.Job.Lane
	limits, paused := m.rules.Covering(j.rec.Job.Kind, lane)
	switch {
	case (paused || len(limits) > 0) && !h.Exact:
		return durable.Verdict{Claimed: durable.Limited}
	case paused:
		return durable.Verdict{Claimed: durable.Limited, After: durable.AskAgain}
	}
	places, counters, has := make([]durable.Place, len(limits)), make([]*durable.Counter, len(limits)), make([]bool, len(limits))
	for i, l := range limits {
		p := l.Place(lane)
		if m.counted[p] == nil {
			m.counted[p] = &durable.Counter{}
		}
		places[i], counters[i], has[i] = p, m.counted[p], slices.Contains(j.places, p)
	}
	if v := m.untimely(limits, counters); v.Claimed == durable.Limited {
		return v
	}
	v := durable.Take(limits, counters, has, w.c.Name, m.now())
	if v.Claimed == durable.Limited && m.freeDead(j, w.c.Name) {
		v = durable.Take(limits, counters, has, w.c.Name, m.now())
	}
	if v.Claimed == durable.Mine {
		j.places = slices.DeleteFunc(j.places, func(p durable.Place) bool { return slices.Contains(places, p) })
		m.free(j) // of a dead worker's claim: what covers the job no longer
		j.places = places
	}
	return v
}

// freeDead frees the places of other jobs whose workers are dead, and are not the one that
// asks, and reports whether there were any: who can take these jobs over may never come.
func (m *Store) freeDead(but *entry, asks string) (some bool) {
	for _, j := range m.jobs {
		if j != but && len(j.places) > 0 && j.by != asks && m.lease(j.by) <= 0 {
			m.free(j)
			some = true
		}
	}
	return some
}

// untimely refuses what has to wait for a token where the clock is set by hand: who has the
// token ahead of its time cannot wait for that.
func (m *Store) untimely(limits []*durable.Rule, counters []*durable.Counter) (v durable.Verdict) {
	if m.clock == nil {
		return v
	}
	now := m.now()
	for i, l := range limits {
		if after := l.Token(counters[i], now).Sub(now); after > v.After {
			v = durable.Verdict{Claimed: durable.Limited, Limit: l.ID, After: after}
		}
	}
	return v
}

// token returns when a job that waits has the tokens that it needs: now, if they are there.
// m.mu is held.
func (m *Store) token(j *entry, now time.Time) time.Time {
	limits, _ := m.rules.Covering(j.rec.Job.Kind, j.rec.Job.Lane)
	at := now
	for _, l := range limits {
		if c := m.counted[l.Place(j.rec.Job.Lane)]; c != nil {
			if t := l.Token(c, now); t.After(at) {
				at = t
			}
		}
	}
	return at
}

// free gives back the places of a job whose claim ends.
func (m *Store) free(j *entry) {
	for _, p := range j.places {
		if c := m.counted[p]; c != nil {
			c.Taken--
		}
	}
	if len(j.places) > 0 {
		m.tell(durable.Notice{Freed: j.places})
	}
	j.places = nil
}

// tell tells all workers. They may be about to call this engine with a lock of theirs.
func (m *Store) tell(n durable.Notice) {
	for _, w := range m.workers {
		if w.c.Tell != nil {
			go w.c.Tell(n)
		}
	}
}

func (e *engine) Rules(context.Context) (*durable.Rules, error) {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	return e.m.rules, e.open()
}

func (e *engine) SetRules(_ context.Context, was int64, r *durable.Rules) error {
	m := e.m
	m.mu.Lock()
	defer m.mu.Unlock()
	switch there := m.rules.Revision(); {
	case e.open() != nil:
		return durable.ErrClosed
	case there == r.Revision():
		return nil // an earlier try
	case there != was:
		return durable.ErrChanged
	}
	var err error
	if m.rules, err = durable.DecodeRules(r.Revision(), r.Encode()); err != nil {
		return err
	}
	maps.DeleteFunc(m.counted, func(p durable.Place, _ *durable.Counter) bool {
		return !slices.ContainsFunc(m.rules.Limits(), func(l *durable.Rule) bool { return l.ID == p.Limit })
	})
	m.recall()
	m.tell(durable.Notice{Rules: true})
	return nil
}

// recall has what was put off handed out at once. m.mu is held.
func (m *Store) recall() {
	for _, j := range m.jobs {
		if j.by == nobody {
			j.by = ""
		}
	}
	m.change()
}

func (e *engine) Usage(context.Context) (all []durable.Usage, err error) {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	for p, c := range e.m.counted {
		all = append(all, durable.Usage{Place: p, Counter: *c})
	}
	return all, e.open()
}

func (e *engine) CancelRunning(_ context.Context, ref durable.Ref) (bool, error) {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	j, ok := e.m.find(ref)
	switch {
	case e.open() != nil:
		return false, durable.ErrClosed
	case !ok:
		return false, durable.ErrNotFound
	case j.state != durable.Running:
		return false, nil
	}
	j.ending = true
	e.m.tell(durable.Notice{Canceled: []durable.Ref{ref}})
	return true, nil
}

// begun returns how many attempts have begun, as far as that is certain, and how many
// claims have not ended, if the one that is there never does.
func (j *entry) begun() (attempts, crashes int) {
	attempts, crashes = j.rec.Attempt, j.rec.Crashes
	if j.state == durable.Running {
		crashes++
		if !j.exact {
			attempts--
		}
	}
	return attempts, crashes
}

// mine returns the job if the Held has claimed it, and nobody has taken over.
func (w *worker) mine(h *durable.Held) *entry {
	j, ok := w.e.m.find(h.Ref)
	if handle := h.Handle.(handle); ok && j.state == durable.Running && j.claim == handle.claim {
		return j
	}
	return nil
}

func (w *worker) Finish(_ context.Context, outs []durable.Outcome) []error {
	m := w.e.m
	m.mu.Lock()
	defer m.mu.Unlock()
	errs := make([]error, len(outs))
	for i, o := range outs {
		errs[i] = w.finish(&o)
	}
	return errs
}

func (w *worker) finish(o *durable.Outcome) error {
	if err := w.e.open(); err != nil {
		return err
	}
	j := w.mine(o.Held)
	if j == nil {
		return durable.ErrLeaseLost
	}
	if err := w.e.m.endOccurrence(j, o); err != nil {
		return err
	}
	j.claim++
	w.e.m.free(j)
	w.e.m.end()
	j.rec.LastError, j.rec.Errors, j.rec.Crashes = o.Error, o.Errors, 0
	if o.Uncounted {
		j.rec.Attempt--
	}
	switch o.End {
	case durable.Done:
		w.e.m.forget(o.Held.Ref, j)
	case durable.Again:
		j.state, j.by, j.rec.Due = durable.Waiting, "", o.At
		j.rec.Version++
		w.e.m.change()
	case durable.Buried:
		j.state, j.until = durable.Dead, w.e.m.now().Add(w.c.Retention)
	}
	if o.Next != nil {
		_, err := w.e.m.insert(*o.Next)
		return err
	}
	return nil
}

// nobody has what was put off. It can be no worker's name.
const nobody = "\x00"

func (w *worker) Release(_ context.Context, held []*durable.Held, after time.Duration) error {
	m := w.e.m
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range held {
		j, ok := m.find(h.Ref)
		if claimed := w.mine(h); claimed != nil {
			j.state = durable.Waiting
			j.rec.Attempt--
			j.claim++
			m.free(j)
		} else if !ok || j.state != durable.Waiting || j.by != w.c.Name {
			continue
		}
		j.by = ""
		if after > 0 {
			j.by, j.since = nobody, time.Now().Add(after-w.c.Lease)
		}
	}
	m.change()
	return w.e.open()
}

func (w *worker) Beat(context.Context) error {
	m := w.e.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := w.e.open(); err != nil {
		return err
	}
	for ref, j := range m.jobs {
		if j.state == durable.Running && j.by == w.c.Name && j.ending && w.c.Tell != nil {
			go w.c.Tell(durable.Notice{Canceled: []durable.Ref{ref}})
		}
	}
	lost := m.workers[w.c.Name] != w || m.lease(w.c.Name) <= 0
	m.workers[w.c.Name], w.beat = w, time.Now()
	if lost {
		return durable.ErrLeaseLost
	}
	return nil
}

func (w *worker) Close(context.Context) error {
	m := w.e.m
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.workers, w.c.Name)
	for _, j := range m.jobs { // what it was handed others may have at once
		if j.by == w.c.Name {
			j.since = time.Time{}
		}
	}
	m.change()
	m.end() // a job that it has claimed may wait for a token from now on
	return w.e.open()
}
