package memory

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	micros "github.com/tickwheel/tickwheel/durable/internal/clock"
	"github.com/tickwheel/tickwheel/durable/internal/held"
)

// Store keeps jobs in a map. Make one with [New]. Its methods may be called by several
// goroutines at once.
//
// A Store has one lock. All state of a job is in its fields, and each query scans the
// whole map.
type Store struct {
	clock *Clock // nil: the time that passes

	mu        sync.Mutex
	jobs      map[driver.Ref]*entry
	over      map[driver.Ref]bool // those that have ended, so that an insert that is repeated is known
	schedules map[string]driver.Schedule
	flow      *driver.FlowControl
	counted   map[driver.LimitKey]*driver.Counter
	stored    int                // counts the jobs that have taken a key, in their order
	begun     map[string]int     // the order of the newest job of each key that has begun
	claims    int                // counts claims and what ends them; it does not go back
	backs     int64              // how often the store was put back
	workers   map[string]*worker // that are there, and those that died without Close
	changed   chan struct{}      // closed, and made anew, when a Fetch may have something to do
	ended     chan struct{}      // the same, when a job is due no more
}

type entry struct {
	rec   driver.Record
	state driver.State
	by    string    // the worker that it is handed out to, or that has claimed it
	since time.Time // when it was handed out
	claim int       // the number of the claim, or of what has ended it, so that an old one is recognized
	exact bool      // that claim counts as an attempt though it never ends
	until time.Time // how long a dead one is kept

	permits []driver.LimitKey // that the claim has
	ending  bool              // CancelRunning was called for the claim
	left    bool              // it has left its key
	filled  time.Time         // when a record went into it
	order   int               // of its key: a job with a higher one was added later
}

type engine struct {
	m      *Store
	closed context.Context
	close  context.CancelFunc
}

type worker struct {
	e         *engine
	c         driver.WorkConfig
	heartbeat time.Time
	backs     int64 // Store.backs at the last heartbeat
	apart     bool  // the last comparison of claims has found a difference
}

// New returns an empty Store on a clock that is set by hand. With nil its time is that of
// package time, which in a testing/synctest bubble is the bubble's.
func New(c *Clock) *Store {
	m := &Store{
		clock: c, jobs: map[driver.Ref]*entry{}, over: map[driver.Ref]bool{}, schedules: map[string]driver.Schedule{}, counted: map[driver.LimitKey]*driver.Counter{},
		begun: map[string]int{}, workers: map[string]*worker{},
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

// change wakes the calls of Fetch. m.mu is held.
func (m *Store) change() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// end tells Advance that a job is due no more. m.mu is held.
func (m *Store) end() {
	close(m.ended)
	m.ended = make(chan struct{})
}

// Open returns an engine on the Store, for one durable.Queue. There may be several, as for
// several processes.
func (m *Store) Open() driver.Engine {
	ctx, cancel := context.WithCancel(context.Background())
	return &engine{m: m, closed: ctx, close: cancel}
}

// Restart simulates the restart of a server: the Store forgets which waiting jobs it has
// handed out.
func (m *Store) Restart() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, j := range m.jobs {
		if j.state == driver.Waiting {
			j.by = ""
		}
	}
	m.change()
}

func (e *engine) Close() error {
	e.close()
	return nil
}

func (e *engine) Now(context.Context) (time.Time, time.Duration, error) {
	return e.m.now(), 0, e.open()
}

// Manual is for package durable: it returns a function that returns the time of a clock
// that is set by hand, or nil. A Queue then reads no clock of its own, and waits for no
// commit to be shared.
func (e *engine) Manual() func() time.Time {
	if e.m.clock == nil {
		return nil
	}
	return e.m.clock.Now
}

// OnSet is for package durable: f is called when a clock that is set by hand was set, until Close.
func (e *engine) OnSet(f func(was, now time.Time)) {
	if e.m.clock != nil {
		context.AfterFunc(e.closed, e.m.clock.notify(f))
	}
}

func (e *engine) open() error {
	if e.closed.Err() != nil {
		return driver.ErrClosed
	}
	return nil
}

func refOf(r *driver.Record) driver.Ref {
	return driver.Ref(r.ID + "." + strconv.FormatInt(r.Born.UnixNano(), 36))
}

func (e *engine) Insert(ctx context.Context, recs []driver.Record) ([]driver.Ref, []error) {
	refs, errs := make([]driver.Ref, len(recs)), make([]error, len(recs))
	began := time.Now()
	for i, r := range recs {
		for {
			refs[i], errs[i] = e.insert(r, began)
			if !errors.Is(errs[i], held.Err) || !held.MayWait(ctx) || ctx.Err() != nil {
				break
			}
			time.Sleep(fillEvery)
		}
	}
	return refs, errs
}

// insert stores a record. A job that was filled since that time was filled with this record.
func (e *engine) insert(r driver.Record, since time.Time) (driver.Ref, error) {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	if err := e.open(); err != nil {
		return "", err
	}
	return e.m.insert(r, since)
}

// fillEvery is how long a job that is due has to be claimed before the next record goes into it.
const fillEvery = 10 * time.Millisecond

func (m *Store) insert(r driver.Record, since time.Time) (driver.Ref, error) {
	ref := refOf(&r)
	if r.Found != nil {
		*r.Found = ""
	}
	if m.jobs[ref] != nil || m.over[ref] {
		return ref, nil
	}
	if there := m.holder(r.Key); there != "" {
		kept, err := m.meet(there, &r, since)
		switch {
		case err != nil:
			return "", err
		case kept:
			return there, nil
		}
	}
	m.leaveExpired(r.Key)
	m.stored++
	m.jobs[ref] = &entry{rec: stored(&r), state: driver.Waiting, claim: m.nextClaim(), order: m.stored}
	m.change()
	return ref, nil
}

// stored returns a record without the fields that are for Insert only, and with bytes of its own.
func stored(r *driver.Record) driver.Record {
	s := *r
	s.Payload, s.Meta = slices.Clone(r.Payload), maps.Clone(r.Meta)
	s.OnKey, s.MaxWait, s.Found = driver.KeyRefuse, 0, nil
	return s
}

// meet applies the OnKey of a record to the job that has its key, and reports whether that
// job stays instead of the record.
func (m *Store) meet(there driver.Ref, r *driver.Record, since time.Time) (kept bool, err error) {
	j := m.jobs[there]
	if r.OnKey == driver.KeyRefuse || j.state != driver.Waiting {
		return false, driver.ErrExists
	}
	if r.Found != nil {
		*r.Found = there
	}
	if r.OnKey == driver.KeyKeep {
		return true, nil
	}
	if j.rec.IsDueFor(r, m.now()) {
		return true, m.fill(j, r, since)
	}
	r.Succeed(&j.rec)
	m.forget(there, j)
	return false, nil
}

// fill stores a record as the next version of a job that is due.
func (m *Store) fill(j *entry, r *driver.Record, since time.Time) error {
	if now := time.Now(); j.filled.Before(since) && now.Sub(j.filled) < fillEvery {
		return held.Err
	}
	m.over[refOf(r)] = true // if it is inserted again, it is known
	next := stored(r)
	next.GoInto(&j.rec)
	j.rec, j.by, j.filled = next, "", time.Now()
	m.change()
	return nil
}

// holder returns the job that has the key, or "". One that waits and has expired has it no more.
func (m *Store) holder(key string) driver.Ref {
	if key == "" {
		return ""
	}
	for ref, j := range m.jobs {
		switch {
		case j.rec.Key != key || j.left || j.state != driver.Waiting && j.state != driver.Running:
		case j.state == driver.Waiting && j.rec.Expired(m.now()):
		default:
			return ref
		}
	}
	return ""
}

// leaveExpired notes that a job takes a key that has no holder: no Lookup finds one of the expired jobs any more.
func (m *Store) leaveExpired(key string) {
	for _, j := range m.jobs {
		if key != "" && j.rec.Key == key && j.state == driver.Waiting {
			j.left = true
		}
	}
}

// superseded reports whether a job that has left its key has ended by that: a newer job of the key
// waits, or has begun. A newer job that was canceled before is none.
func (m *Store) superseded(j *entry) bool {
	if !j.left {
		return false
	}
	return m.begun[j.rec.Key] > j.order || m.holder(j.rec.Key) != ""
}

// begins notes that a job with a key has begun.
func (m *Store) begins(j *entry) {
	if j.rec.Key != "" {
		m.begun[j.rec.Key] = max(m.begun[j.rec.Key], j.order)
	}
}

// find returns a job, and whether there was one. One that has ended has no state.
func (m *Store) find(ref driver.Ref) (*entry, bool) {
	j := m.jobs[ref]
	if j == nil {
		return &entry{}, m.over[ref]
	}
	if j.state.Ended() && !m.now().Before(j.until) {
		m.forget(ref, j)
	}
	return j, true
}

// retain ends a job that is done or canceled: it is kept with its Ending, if that is not nil.
func (m *Store) retain(ref driver.Ref, j *entry, e *driver.Ending) {
	if e == nil {
		m.forget(ref, j)
		return
	}
	j.rec.End(e)
	j.state, j.until = e.State, m.now().Add(j.rec.Retain)
	m.end()
}

// forget ends a job. It is removed, so that no later reading passes over it. m.mu is held.
func (m *Store) forget(ref driver.Ref, j *entry) {
	j.state = 0
	delete(m.jobs, ref)
	m.over[ref] = true
	m.end()
}

func (e *engine) Cancel(_ context.Context, refs []driver.Ref) ([]bool, []error) {
	oks, errs := make([]bool, len(refs)), make([]error, len(refs))
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	for i, ref := range refs {
		j, ok := e.m.find(ref)
		switch {
		case e.open() != nil:
			errs[i] = driver.ErrClosed
		case !ok:
			errs[i] = driver.ErrNotFound
		case j.state == driver.Waiting:
			var ending *driver.Ending
			if j.rec.Retain > 0 {
				ending = driver.CanceledAt(e.m.now())
			}
			e.m.retain(ref, j, ending)
			oks[i] = true
		}
	}
	return oks, errs
}

func (e *engine) Move(_ context.Context, ref driver.Ref, at time.Time) (bool, error) {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	j, ok := e.m.find(ref)
	switch {
	case e.open() != nil:
		return false, driver.ErrClosed
	case !ok:
		return false, driver.ErrNotFound
	case j.state != driver.Waiting:
		return false, nil
	}
	e.m.move(j, at)
	return true, nil
}

// move changes when a job that waits is due.
func (m *Store) move(j *entry, at time.Time) {
	j.rec.Due, j.by = at, ""
	j.rec.Version++ // what was handed out is gone
	m.change()
	m.end()
}

func (e *engine) Signal(_ context.Context, key string, payload []byte, at time.Time) (bool, error) {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	j := e.m.jobs[e.m.holder(key)]
	switch {
	case e.open() != nil:
		return false, driver.ErrClosed
	case j == nil || j.state != driver.Waiting || !j.rec.Signals || j.rec.Signal != nil:
		return false, nil
	}
	j.rec.Signal = append([]byte{}, payload...)
	if now := micros.WholeMicros(e.m.now()); now.Before(at) {
		at = now
	}
	e.m.move(j, at)
	return true, nil
}

func (e *engine) Redrive(_ context.Context, ref driver.Ref, at time.Time) error {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	j, ok := e.m.find(ref)
	switch {
	case e.open() != nil:
		return driver.ErrClosed
	case !ok || j.state != driver.Dead:
		return driver.ErrNotFound
	case e.m.holder(j.rec.Key) != "":
		return driver.ErrExists
	}
	e.m.leaveExpired(j.rec.Key)
	e.m.stored++
	j.left, j.order = false, e.m.stored
	j.rec.Due, j.rec.Attempt, j.rec.Crashes, j.state, j.by = at, 0, 0, driver.Waiting, ""
	j.rec.Expires, j.rec.Ending = time.Time{}, nil
	j.rec.Retried(at)
	j.rec.Version++
	e.m.change()
	return nil
}

func (e *engine) Delete(_ context.Context, ref driver.Ref) error {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	j, ok := e.m.find(ref)
	switch {
	case e.open() != nil:
		return driver.ErrClosed
	case !ok || !j.state.Ended():
		return driver.ErrNotFound
	}
	e.m.forget(ref, j)
	return nil
}

func (e *engine) Lookup(_ context.Context, key string) (driver.Ref, error) {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	if err := e.open(); err != nil {
		return "", err
	}
	if ref := e.m.holder(key); ref != "" {
		return ref, nil
	}
	for ref, j := range e.m.jobs { // as with other engines
		if key != "" && j.rec.Key == key && !j.left && j.state == driver.Waiting && j.rec.Expired(e.m.now()) {
			return ref, nil
		}
	}
	return "", driver.ErrNotFound
}

func (j *entry) info(ref driver.Ref) driver.Info {
	i := j.rec.Info(ref, j.state)
	i.Job.Payload, i.Job.Meta, i.Errors = slices.Clone(i.Job.Payload), maps.Clone(i.Job.Meta), slices.Clone(i.Errors) // the caller's
	i.Attempt = min(i.Attempt, j.rec.MaxAttempts)
	if j.state == driver.Running {
		i.Worker = j.by
	}
	return i
}

func (e *engine) Get(_ context.Context, ref driver.Ref) (driver.Info, error) {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	if err := e.open(); err != nil {
		return driver.Info{}, err
	}
	j, ok := e.m.find(ref)
	if !ok || j.state == 0 {
		return driver.Info{}, driver.ErrNotFound
	}
	return j.info(ref), nil
}

func (e *engine) Progress(_ context.Context, refs []driver.Ref) ([]driver.Progress, []error) {
	all, errs := make([]driver.Progress, len(refs)), make([]error, len(refs))
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	for i, ref := range refs {
		j, ok := e.m.find(ref)
		switch {
		case e.open() != nil:
			errs[i] = driver.ErrClosed
		case !ok:
			errs[i] = driver.ErrNotFound
		default:
			all[i] = driver.Progress{State: j.state, Due: j.rec.Due}
		}
	}
	return all, errs
}

func (e *engine) Scan(_ context.Context, f driver.Filter) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
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

func (e *engine) SetSchedule(_ context.Context, was int64, s driver.Schedule, replace driver.Replace) error {
	m := e.m
	m.mu.Lock()
	defer m.mu.Unlock()
	there := m.schedules[s.Name]
	switch {
	case e.open() != nil:
		return driver.ErrClosed
	case there.Revision == s.Revision:
		return nil // an earlier try
	case there.Revision != was:
		return driver.ErrChanged
	}
	if s.Definition != "" {
		s.Last = there.Last
	}
	ref := m.holder(driver.OccurrenceKey(s.Name))
	j := m.jobs[ref]
	var waits, next *driver.Record
	if j != nil {
		if attempt, _ := j.begun(); j.state != driver.Waiting || attempt > 0 {
			m.schedules[s.Name] = s
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
	m.schedules[s.Name] = s
	if next == waits {
		return nil
	}
	if waits != nil {
		m.forget(ref, j)
	}
	if next == nil {
		return nil
	}
	_, err := m.insert(*next, time.Now())
	return err
}

// endOccurrence notes that an occurrence has ended, if its schedule is as it was.
func (m *Store) endOccurrence(j *entry, o *driver.Completion) error {
	if !j.rec.IsOccurrence() || o.End == driver.Retry {
		return nil
	}
	s := m.schedules[j.rec.Schedule]
	if s.Revision != o.Revision {
		return driver.ErrChanged
	}
	if !o.Occurred.IsZero() && s.Revision != 0 {
		s.Last = o.Occurred
		m.schedules[j.rec.Schedule] = s
	}
	return nil
}

func (e *engine) Schedule(_ context.Context, name string) (driver.Schedule, error) {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	if err := e.open(); err != nil {
		return driver.Schedule{}, err
	}
	s, ok := e.m.schedules[name]
	if !ok {
		return s, driver.ErrNotFound
	}
	return s, nil
}

func (e *engine) Schedules(context.Context) iter.Seq2[driver.Schedule, error] {
	return func(yield func(driver.Schedule, error) bool) {
		e.m.mu.Lock()
		all, err := slices.Collect(maps.Values(e.m.schedules)), e.open()
		e.m.mu.Unlock()
		if err != nil {
			yield(driver.Schedule{}, err)
			return
		}
		for _, s := range all {
			if s.Definition != "" && !yield(s, nil) {
				return
			}
		}
	}
}

func (e *engine) Work(_ context.Context, c driver.WorkConfig) (driver.Worker, error) {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	if err := e.open(); err != nil {
		return nil, err
	}
	if err := driver.CheckWorkerName(c.Name); err != nil {
		return nil, err
	}
	if e.m.workers[c.Name] != nil {
		return nil, fmt.Errorf("%w: another worker has the name %q", driver.ErrInvalid, c.Name)
	}
	w := &worker{e: e, c: c, heartbeat: time.Now(), backs: e.m.backs}
	e.m.workers[c.Name] = w
	return w, nil
}

// lease returns for how long a worker's lease is not over.
func (m *Store) lease(name string) time.Duration {
	w := m.workers[name]
	if w == nil {
		return 0
	}
	return time.Until(w.heartbeat.Add(w.c.Lease))
}

func (w *worker) Fetch(ctx context.Context, give func([]*driver.Delivery)) error {
	for ctx.Err() == nil { // also while there are more: give may take longer than a lease
		open, opened := w.c.Kinds.Open()
		soon, changed := w.due(open)
		if w.c.Polled != nil {
			w.c.Polled()
		}
		if len(soon) > 0 {
			give(soon)
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.e.closed.Done():
			return driver.ErrClosed
		case <-changed:
		case <-opened:
		case <-time.After(min(w.c.Ahead, w.c.Lease) / 2):
		}
	}
	return nil
}

// handOut is how many jobs are handed out at one time, so that a kind that is shut by that
// is so soon.
const handOut = 1000

// due hands out what of the kinds is due soon and nobody has.
func (w *worker) due(kinds []string) ([]*driver.Delivery, chan struct{}) {
	m := w.e.m
	m.mu.Lock()
	defer m.mu.Unlock()
	now, soon := time.Now(), m.now().Add(w.c.Ahead)
	if m.clock != nil {
		soon = m.now().Add(1) // nobody can wait for a time that is set by hand
	}
	var refs []driver.Ref
	for ref, j := range m.jobs {
		_, open := slices.BinarySearch(kinds, j.rec.Kind)
		waits := j.state == driver.Waiting && (j.by == "" || now.Sub(j.since) >= w.c.Lease)
		orphan := j.state == driver.Running && j.by != w.c.Name && m.lease(j.by) <= 0 && now.Sub(j.since) >= w.c.Lease
		if open && (waits || orphan) && j.rec.Due.Before(soon) {
			refs = append(refs, ref)
		}
	}
	slices.SortFunc(refs, func(a, b driver.Ref) int { return m.jobs[a].rec.Due.Compare(m.jobs[b].rec.Due) })
	var held []*driver.Delivery
	for _, ref := range refs[:min(len(refs), handOut)] {
		j := m.jobs[ref]
		j.since = now
		if j.state == driver.Waiting {
			j.by = w.c.Name
		}
		rec := j.rec
		rec.Attempt, rec.Crashes = j.begun()
		held = append(held, &driver.Delivery{Ref: ref, Record: rec})
	}
	return held, m.changed
}

func (e *engine) Unhandled(context.Context) ([]driver.Unhandled, error) {
	m := e.m
	m.mu.Lock()
	defer m.mu.Unlock()
	oldest := map[string]driver.Unhandled{}
	for ref, j := range m.jobs {
		kind := j.rec.Kind
		o, ok := oldest[kind]
		if j.state == driver.Waiting && !j.rec.Due.After(m.now()) && (!ok || j.rec.Due.Before(o.Due)) {
			oldest[kind] = driver.Unhandled{Kind: kind, Oldest: ref, Due: j.rec.Due}
		}
	}
	maps.DeleteFunc(oldest, func(kind string, _ driver.Unhandled) bool { return m.handled(kind) })
	return slices.SortedFunc(maps.Values(oldest), func(a, b driver.Unhandled) int { return a.Due.Compare(b.Due) }), e.open()
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

func (w *worker) Claim(_ context.Context, held []*driver.Delivery) []driver.ClaimResult {
	m := w.e.m
	m.mu.Lock()
	defer m.mu.Unlock()
	verdicts := make([]driver.ClaimResult, len(held))
	for i, h := range held {
		verdicts[i] = w.claim(h)
	}
	return verdicts
}

func (w *worker) claim(h *driver.Delivery) driver.ClaimResult {
	m := w.e.m
	j, ok := m.find(h.Ref)
	if w.e.open() != nil {
		return driver.ClaimResult{Status: driver.RetryLater, After: time.Second}
	}
	if !ok || (j.state != driver.Waiting && j.state != driver.Running) || j.rec.Version != h.Record.Version {
		return driver.ClaimResult{Status: driver.Gone}
	}
	if j.state == driver.Running && j.by == w.c.Name { // the answer was lost
		j.exact = j.exact || h.Exact
		m.leave(j)
		j.claim = m.nextClaim() // so that compare does not hand back what is known from now on
		h.Claim = j.claim
		limits, _ := m.flow.Covering(j.rec.Kind, j.rec.Lane, m.now())
		return driver.ClaimResult{Status: driver.Granted, Attempt: j.rec.Attempt, At: driver.TokenValidBy(limits, m.now())}
	}
	if j.state == driver.Running {
		if left := m.lease(j.by); left > 0 {
			return driver.ClaimResult{Status: driver.RetryLater, After: left}
		}
	}
	if m.superseded(j) && !j.rec.Expired(m.now()) {
		m.free(j)
		done := driver.DoneWith(h, time.Time{})
		m.retain(h.Ref, j, done.Ending(w.c.Name, m.now()))
		return driver.ClaimResult{Status: driver.Gone}
	}
	begun, crashes := j.begun()
	if crashes > 0 && !h.Exact {
		return driver.ClaimResult{Status: driver.Suspect, Crashes: crashes}
	}
	v := w.take(j, h)
	if v.Status != driver.Granted {
		return v
	}
	j.state, j.by, j.exact, j.ending = driver.Running, w.c.Name, h.Exact, false
	j.rec.Attempt, j.rec.Crashes = min(begun, j.rec.MaxAttempts)+1, crashes
	m.leave(j)
	j.claim = m.nextClaim()
	h.Claim = j.claim
	return driver.ClaimResult{Status: driver.Granted, Attempt: j.rec.Attempt, At: v.At}
}

// leave frees the key of a claimed job that begins, with FreeWhenBegun.
func (m *Store) leave(j *entry) {
	if j.exact && j.rec.FreeWhenBegun {
		j.left = true
		m.begins(j)
	}
}

// take takes the permits and tokens of a claim, or says what it has to wait for.
func (w *worker) take(j *entry, h *driver.Delivery) driver.ClaimResult {
	m, lane := w.e.m, j.rec.Lane
	limits, paused := m.flow.Covering(j.rec.Kind, lane, m.now())
	switch {
	case (paused > 0 || len(limits) > 0) && !h.Exact:
		return driver.ClaimResult{Status: driver.Throttled}
	case paused > 0:
		return driver.Paused(paused)
	}
	keys, counters, has := make([]driver.LimitKey, len(limits)), make([]*driver.Counter, len(limits)), make([]bool, len(limits))
	for i, l := range limits {
		p := l.Key(lane)
		if m.counted[p] == nil {
			m.counted[p] = &driver.Counter{}
		}
		keys[i], counters[i], has[i] = p, m.counted[p], slices.Contains(j.permits, p)
	}
	if v := m.untimely(limits, counters); v.Status == driver.Throttled {
		return v
	}
	v := driver.Take(limits, counters, has, w.c.Name, m.now())
	if v.Status == driver.Throttled && m.freeDead(j, w.c.Name) {
		v = driver.Take(limits, counters, has, w.c.Name, m.now())
	}
	if v.Status == driver.Granted {
		j.permits = slices.DeleteFunc(j.permits, func(p driver.LimitKey) bool { return slices.Contains(keys, p) })
		m.free(j) // of a dead worker's claim: what covers the job no longer
		j.permits = keys
	}
	return v
}

// freeDead frees the permits of other jobs whose workers are dead, and are not the one that
// asks, and reports whether there were any: who can take these jobs over may never come.
func (m *Store) freeDead(but *entry, asks string) (some bool) {
	for _, j := range m.jobs {
		if j != but && len(j.permits) > 0 && j.by != asks && m.lease(j.by) <= 0 {
			m.free(j)
			some = true
		}
	}
	return some
}

// untimely refuses what has to wait for a token where the clock is set by hand: who has the
// token ahead of its time cannot wait for that.
func (m *Store) untimely(limits []*driver.StoredLimit, counters []*driver.Counter) (v driver.ClaimResult) {
	if m.clock == nil {
		return v
	}
	now := m.now()
	for i, l := range limits {
		if after := l.NextToken(counters[i], now).Sub(now); after > v.After {
			v = driver.ClaimResult{Status: driver.Throttled, Limit: l.ID, After: after}
		}
	}
	return v
}

// setBack keeps the times of tokens as far ahead when the clock goes back. By driver.Take the next token would be there
// a little after now, whenever it is asked for, and one that is ahead of its time is given to nobody here: see untimely.
// m.mu is held.
func (m *Store) setBack(was, now time.Time) {
	for _, c := range m.counted {
		c.TAT = now.UnixNano() + max(0, c.TAT-was.UnixNano())
	}
}

// token returns when a job that waits has the tokens that it needs, and its pause has ended: now,
// if they are there, and for a pause without an end. m.mu is held.
func (m *Store) token(j *entry, now time.Time) time.Time {
	limits, paused := m.flow.Covering(j.rec.Kind, j.rec.Lane, now)
	at := now
	if paused < driver.Forever {
		at = at.Add(paused)
	}
	for _, l := range limits {
		if c := m.counted[l.Key(j.rec.Lane)]; c != nil {
			if t := l.NextToken(c, now); t.After(at) {
				at = t
			}
		}
	}
	return at
}

// free gives back the permits of a job whose claim ends.
func (m *Store) free(j *entry) {
	for _, p := range j.permits {
		if c := m.counted[p]; c != nil {
			c.Taken--
		}
	}
	if len(j.permits) > 0 {
		m.notifyAll(driver.Notice{Freed: j.permits})
	}
	j.permits = nil
}

// notifyAll sends all workers a notice. They may be about to call this engine with a lock of theirs.
func (m *Store) notifyAll(n driver.Notice) {
	for _, w := range m.workers {
		if w.c.Notify != nil {
			go w.c.Notify(n)
		}
	}
}

func (e *engine) FlowControl(context.Context) (*driver.FlowControl, error) {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	return e.m.flow, e.open()
}

func (e *engine) SetFlowControl(_ context.Context, was int64, r *driver.FlowControl) error {
	m := e.m
	m.mu.Lock()
	defer m.mu.Unlock()
	switch there := m.flow.Revision(); {
	case e.open() != nil:
		return driver.ErrClosed
	case there == r.Revision():
		return nil // an earlier try
	case there != was:
		return driver.ErrChanged
	}
	var err error
	if m.flow, err = driver.DecodeFlowControl(r.Revision(), r.Encode()); err != nil {
		return err
	}
	maps.DeleteFunc(m.counted, func(p driver.LimitKey, _ *driver.Counter) bool {
		return !slices.ContainsFunc(m.flow.Limits(), func(l *driver.StoredLimit) bool { return l.ID == p.Limit })
	})
	m.recall()
	m.notifyAll(driver.Notice{FlowControl: true})
	return nil
}

// recall hands out at once all that was put off, since the limits, the pauses or the clock were changed. Advance looks
// again at which jobs are due. m.mu is held.
func (m *Store) recall() {
	for _, j := range m.jobs {
		if j.by == nobody {
			j.by = ""
		}
	}
	m.change()
	m.end()
}

func (e *engine) Usage(context.Context) (all []driver.Usage, err error) {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	for p, c := range e.m.counted {
		all = append(all, driver.Usage{LimitKey: p, Counter: *c})
	}
	return all, e.open()
}

func (e *engine) CancelRunning(_ context.Context, ref driver.Ref) (bool, error) {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	j, ok := e.m.find(ref)
	switch {
	case e.open() != nil:
		return false, driver.ErrClosed
	case !ok:
		return false, driver.ErrNotFound
	case j.state != driver.Running:
		return false, nil
	}
	j.ending = true
	e.m.notifyAll(driver.Notice{Canceled: []driver.Ref{ref}})
	return true, nil
}

// begun returns how many attempts have begun, as far as that is certain, and how many
// claims have not ended, if the one that is there never does.
func (j *entry) begun() (attempts, crashes int) {
	attempts, crashes = j.rec.Attempt, j.rec.Crashes
	if j.state == driver.Running {
		crashes++
		if !j.exact {
			attempts--
		}
	}
	return attempts, crashes
}

// mine returns the job if the Delivery has claimed it, and nobody has taken over.
func (w *worker) mine(h *driver.Delivery) *entry {
	j, ok := w.e.m.find(h.Ref)
	if ok && j.state == driver.Running && h.Claim == j.claim {
		return j
	}
	return nil
}

func (w *worker) Finish(_ context.Context, outs []driver.Completion) []error {
	m := w.e.m
	m.mu.Lock()
	defer m.mu.Unlock()
	errs := make([]error, len(outs))
	for i, o := range outs {
		errs[i] = w.finish(&o)
	}
	return errs
}

func (w *worker) finish(o *driver.Completion) error {
	if err := w.e.open(); err != nil {
		return err
	}
	j := w.mine(o.Delivery)
	if j == nil {
		return driver.ErrLeaseLost
	}
	if err := w.e.m.endOccurrence(j, o); err != nil {
		return err
	}
	j.claim = w.e.m.nextClaim()
	w.e.m.free(j)
	w.e.m.end()
	j.rec.LastError, j.rec.Errors, j.rec.Crashes = o.Error, o.Errors, 0
	if o.Uncounted {
		j.rec.Attempt--
	}
	end, ending := o.End, o.Ending(w.c.Name, w.e.m.now())
	if end == driver.Retry && w.e.m.superseded(j) {
		end = driver.Done
	}
	if end != driver.Retry {
		w.e.m.begins(j)
	}
	switch end {
	case driver.Done:
		w.e.m.retain(o.Delivery.Ref, j, ending)
	case driver.Retry:
		j.state, j.by, j.left, j.rec.Due = driver.Waiting, "", false, o.At
		j.rec.Retried(o.At)
		j.rec.Version++
		w.e.m.change()
	case driver.DeadLetter:
		j.state, j.until, j.rec.Ending = driver.Dead, w.e.m.now().Add(max(w.c.Retention, j.rec.Retain)), ending
	}
	if o.Next != nil && w.e.m.holder(o.Next.Key) == "" { // else another occurrence has the key
		_, err := w.e.m.insert(*o.Next, time.Now())
		return err
	}
	return nil
}

// nobody has what was put off. It can be no worker's name.
const nobody = "\x00"

func (w *worker) Release(_ context.Context, held []*driver.Delivery, after time.Duration) error {
	m := w.e.m
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range held {
		j, ok := m.find(h.Ref)
		if claimed := w.mine(h); claimed != nil {
			j.state = driver.Waiting
			j.rec.Attempt--
			j.claim = m.nextClaim()
			j.left = m.superseded(j)
			m.free(j)
		} else if !ok || j.state != driver.Waiting || j.by != w.c.Name {
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

func (w *worker) Heartbeat(context.Context) error {
	w.compare()
	m := w.e.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := w.e.open(); err != nil {
		return err
	}
	for ref, j := range m.jobs {
		if j.state == driver.Running && j.by == w.c.Name && j.ending && w.c.Notify != nil {
			go w.c.Notify(driver.Notice{Canceled: []driver.Ref{ref}})
		}
	}
	lost := m.workers[w.c.Name] != w || m.lease(w.c.Name) <= 0
	m.workers[w.c.Name], w.heartbeat = w, time.Now()
	if lost {
		return driver.ErrLeaseLost
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
	// It may have deferred jobs because of limits that were changed since. And a job that it has claimed may wait for a
	// token from now on.
	m.recall()
	return w.e.open()
}
