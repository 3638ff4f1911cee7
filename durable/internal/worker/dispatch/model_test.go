package dispatch

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
)

var seeds = flag.Int("seeds", 20, "how many random runs of the model there are")

// The model is a list of the state of each job, by what the Dispatcher has said. It knows which
// change of a state may be made and when, and nothing about queues.
func TestModel(t *testing.T) {
	for seed := range *seeds {
		m := newModel(t, uint64(seed))
		for range 600 {
			m.step()
		}
		m.finish()
	}
}

type state int

const (
	held state = iota
	asked
	granted
	runs
	ends
)

type entry struct {
	job    *Job // once it was seen
	record *driver.Delivery
	state  state
	exact  bool
	token  time.Time
	began  time.Time
	number int
}

type model struct {
	t    *testing.T
	r    *rand.Rand
	seed uint64
	d    *Dispatcher
	c    Config

	now    time.Time // by both clocks
	off    time.Duration
	timers []pending
	jobs   map[driver.Ref]*entry
	newer  map[*driver.Delivery]bool // versions of jobs that are held
	claims []*Job
	shut   map[string]bool
	flow   *driver.FlowControl
	sound  bool
	last   string
	next   int
}

type pending struct {
	at    time.Time
	timer Timer
}

func newModel(t *testing.T, seed uint64) *model {
	r := rand.New(rand.NewPCG(seed, 7))
	m := &model{
		t: t, r: r, seed: seed, now: time.Unix(2e9, 0), off: time.Duration(r.IntN(3)) * time.Millisecond,
		jobs: map[driver.Ref]*entry{}, newer: map[*driver.Delivery]bool{}, shut: map[string]bool{}, sound: true,
	}
	m.c = Config{
		Kinds: []string{"a", "b", "c"}, Limits: map[string]int{"b": 1 + r.IntN(3)}, Concurrency: 1 + r.IntN(20), Lease: 10 * time.Second,
	}
	m.d = New(m.c, m.moment())
	return m
}

func (m *model) moment() Moment { return Moment{Local: m.now, Engine: m.now, Off: m.off} }

func (m *model) fail(format string, args ...any) {
	m.t.Helper()
	require.Fail(m.t, fmt.Sprintf(format, args...), "seed %d, after %s", m.seed, m.last)
}

// step is one call, and what follows from it.
func (m *model) step() {
	m.last = ""
	switch n := m.r.IntN(100); {
	case n < 30:
		m.add()
	case n < 50:
		m.advance(time.Duration(m.r.ExpFloat64() * float64(200*time.Millisecond)))
	case n < 60:
		m.ask()
	case n < 70:
		m.answer()
	case n < 85:
		m.endSome()
	case n < 90:
		m.forgetSome()
	case n < 92:
		m.cancelSome()
	case n < 94:
		m.unbegin()
	case n < 95:
		m.sound = !m.sound
		m.last = "sound"
	case n < 96:
		m.loseLease()
	case n < 98:
		m.setFlowControl()
	default:
		m.free()
	}
	m.follow()
}

// follow carries out what Next returns, and compares.
func (m *model) follow() {
	a := m.d.Next(m.moment(), m.sound)
	for _, j := range a.Begin {
		m.begin(j)
	}
	for _, j := range a.Bury {
		e := m.known(j, granted)
		if j.Attempt <= j.Delivery.Record.MaxAttempts {
			m.fail("%s is buried in attempt %d", j.Delivery.Ref, j.Attempt)
		}
		e.state = ends
	}
	for _, h := range a.Dropped {
		m.gone(h)
	}
	for _, d := range a.Deferred {
		if d.After < leastDeferral || d.After > mostDeferral {
			m.fail("deferred for %v", d.After)
		}
		for _, h := range d.Jobs {
			m.gone(h)
		}
	}
	for _, k := range a.Kinds {
		if m.shut[k.Kind] != k.Open {
			m.fail("kind %s: open %t, and was so", k.Kind, k.Open)
		}
		m.shut[k.Kind] = !k.Open
	}
	for _, t := range a.Timers {
		if t.After > m.c.Lease {
			m.fail("a timer of %v", t.After)
		}
		m.timers = append(m.timers, pending{m.now.Add(max(0, t.After)), t})
	}
	if err := m.d.verify(); err != nil {
		m.fail("%v", err)
	}
	m.compare()
}

// compare compares the counts.
func (m *model) compare() {
	var want Counts
	for _, e := range m.jobs {
		want.Held++
		switch e.state {
		case granted:
			want.Claimed++
		case runs:
			want.Running++
		case ends:
			want.Ending++
		}
	}
	want.Held -= m.deferred() // the Dispatcher has dropped these, and has not said so yet
	if got := m.d.Counts(); got != want {
		m.fail("counts %+v, not %+v", got, want)
	}
	if taken := want.Running + m.d.slots.reserved; taken > m.c.Concurrency {
		m.fail("%d slots of %d are taken", taken, m.c.Concurrency)
	}
}

func (m *model) deferred() (n int) {
	for _, jobs := range m.d.deferred.byTime {
		n += len(jobs)
	}
	return n
}

func (m *model) known(j *Job, s state) *entry {
	m.t.Helper()
	e := m.jobs[j.Delivery.Ref]
	if e == nil || e.state != s || e.job != nil && e.job != j {
		m.fail("%s: not in state %d: %+v", j.Delivery.Ref, s, e)
	}
	e.job = j
	return e
}

func (m *model) gone(h *driver.Delivery) {
	if m.newer[h] {
		delete(m.newer, h)
		return // it was no job of this model yet
	}
	e := m.jobs[h.Ref]
	if e == nil || e.state >= runs || e.record != h {
		m.fail("%s is handed back: %+v", h.Ref, e)
	}
	delete(m.jobs, h.Ref)
}

func (m *model) covering(h *driver.Delivery) (limits []*driver.StoredLimit, paused bool) {
	limits, rest := m.flow.Covering(h.Record.Kind, h.Record.Lane, m.moment().Engine)
	return limits, rest > 0
}

func (m *model) begin(j *Job) {
	e := m.known(j, granted)
	if !m.sound && !e.exact {
		m.fail("%s begins under a lease that is not sound", j.Delivery.Ref)
	}
	if early := m.moment().until(j.Delivery.Record.Due); early > 0 {
		m.fail("%s begins %v early", j.Delivery.Ref, early)
	}
	if early := m.moment().until(e.token); !e.token.IsZero() && early > 0 {
		m.fail("%s begins %v before its token", j.Delivery.Ref, early)
	}
	e.state, e.began = runs, m.now
	suspects, worst := 0, 0
	for _, o := range m.jobs {
		if o.job != nil && o.state == runs && o.job.crashes > 0 && m.now.Sub(o.began) < m.c.Lease {
			suspects, worst = suspects+1, max(worst, o.job.crashes)
		}
	}
	if worst > 0 && suspects > trialSlots(worst, m.c.Concurrency) {
		m.fail("%d suspects on trial, the worst with %d crashes", suspects, worst)
	}
}

func (m *model) add() {
	m.last = "add"
	if m.d.Full() {
		return
	}
	m.next++
	h := &driver.Delivery{Ref: driver.Ref(fmt.Sprint(m.next)), Record: driver.Record{
		Job: driver.Job{
			Kind: m.c.Kinds[m.r.IntN(3)], MaxAttempts: 3, Priority: driver.Priority(m.r.IntN(3) - 1), Payload: make([]byte, m.r.IntN(3)),
		},
		Attempt: m.r.IntN(3), Due: m.now.Add(time.Duration((m.r.Float64() - 0.3) * float64(2*time.Second))),
	}}
	if m.r.IntN(3) == 0 {
		h.Record.Lane = string(rune('x' + m.r.IntN(3)))
	}
	if m.r.IntN(10) == 0 {
		h.Record.Crashes = 1 + m.r.IntN(3)
	}
	if m.r.IntN(50) == 0 {
		h.Record.Due = m.now.Add(3 * m.c.Lease)
	}
	if m.r.IntN(10) == 0 && len(m.jobs) > 0 { // a newer version of one that is held
		o := m.pick(func(e *entry) bool { return m.d.Job(e.record.Ref) != nil })
		if o == nil {
			return
		}
		was := m.d.Job(o.record.Ref).newer
		h.Ref, h.Record.Version = o.record.Ref, o.record.Record.Version+1
		if m.d.Has(h) {
			delete(m.newer, was)
			m.newer[h] = true
			return
		}
		delete(m.newer, was)
		if o.state != held {
			m.fail("%s was dropped in state %d", h.Ref, o.state)
		}
	}
	m.jobs[h.Ref] = &entry{record: h}
	m.d.Add(h, m.moment())
}

// pick returns one of the jobs that f selects, or nil.
func (m *model) pick(f func(*entry) bool) *entry {
	var all []*entry
	for _, e := range m.jobs {
		if f(e) {
			all = append(all, e)
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b *entry) int { return cmp.Compare(a.record.Ref, b.record.Ref) })
	return all[m.r.IntN(len(all))]
}

// advance lets time pass, and fires what is due meanwhile, in order.
func (m *model) advance(d time.Duration) {
	m.last = fmt.Sprint("advance ", d)
	to := m.now.Add(d)
	for {
		slices.SortStableFunc(m.timers, func(a, b pending) int { return a.at.Compare(b.at) })
		if len(m.timers) == 0 || m.timers[0].at.After(to) {
			break
		}
		p := m.timers[0]
		m.timers = m.timers[1:]
		if p.at.After(m.now) {
			m.now = p.at
		}
		m.d.Fire(p.timer, m.moment())
		m.follow()
	}
	m.now = to
}

// ask asks for claims, if none is under way.
func (m *model) ask() {
	m.last = "claims"
	if m.claims != nil {
		return
	}
	for _, j := range m.d.Claims(m.moment()) {
		e := m.known(j, held)
		e.state, e.exact = asked, j.Delivery.Exact
		if early := m.moment().until(j.Delivery.Record.Due); e.exact && early > 0 || early > MaxLead {
			m.fail("%s is claimed %v early, exact %t", j.Delivery.Ref, early, e.exact)
		}
		m.claims = append(m.claims, j)
	}
}

// answer answers the claim that is under way, as an engine might.
func (m *model) answer() {
	m.last = "answer"
	if m.claims == nil {
		return
	}
	jobs := m.claims
	m.claims = nil
	results := make([]driver.ClaimResult, len(jobs))
	for i, j := range jobs {
		results[i] = m.resultFor(j)
	}
	m.answerBy(jobs, results)
}

func (m *model) answerBy(jobs []*Job, results []driver.ClaimResult) {
	for i, j := range jobs {
		e := m.known(j, asked)
		switch r := results[i]; {
		case r.Status == driver.Gone, r.Status != driver.Granted && j.newer != nil:
			m.remove(e)
		case r.Status == driver.Granted && !j.lost:
			e.state, e.token, e.number = granted, r.At, r.Attempt
		default:
			e.state = held
		}
	}
	m.d.Answered(jobs, results, m.moment())
}

func (m *model) resultFor(j *Job) driver.ClaimResult {
	limits, paused := m.covering(j.Delivery)
	n := m.r.IntN(20)
	switch {
	case n == 0:
		return driver.ClaimResult{Status: driver.Gone}
	case n == 1:
		return driver.ClaimResult{Status: driver.RetryLater, After: time.Duration(m.r.IntN(100)) * time.Millisecond}
	case n == 2 && !j.Delivery.Exact:
		return driver.ClaimResult{Status: driver.Suspect, Crashes: 1}
	case paused:
		return driver.ClaimResult{Status: driver.Throttled, After: driver.RetryInterval}
	case len(limits) > 0 && !j.Delivery.Exact:
		return driver.ClaimResult{Status: driver.Throttled}
	case len(limits) > 0 && n < 8:
		l := limits[m.r.IntN(len(limits))]
		after := time.Duration(m.r.IntN(200)) * time.Millisecond
		if l.Running > 0 {
			after = driver.RetryInterval
		}
		return driver.ClaimResult{Status: driver.Throttled, Limit: l.ID, After: after}
	case n == 9: // the last attempt never ended
		return driver.ClaimResult{Status: driver.Granted, Attempt: j.Delivery.Record.MaxAttempts + 1}
	case len(limits) > 0 && n < 12:
		return driver.ClaimResult{Status: driver.Granted, Attempt: 1, At: m.now.Add(driver.TokenAhead)}
	}
	return driver.ClaimResult{Status: driver.Granted, Attempt: 1}
}

// endSome has handlers return.
func (m *model) endSome() {
	m.last = "done"
	for range 1 + m.r.IntN(3) {
		if e := m.pick(func(e *entry) bool { return e.state == runs }); e != nil {
			m.d.Done(e.job, m.moment())
			e.state = ends
		}
	}
}

// forgetSome has ends written down.
func (m *model) forgetSome() {
	m.last = "forget"
	for range 1 + m.r.IntN(5) {
		if e := m.pick(func(e *entry) bool { return e.state == ends }); e != nil {
			m.forget(e)
		}
	}
}

func (m *model) forget(e *entry) {
	m.remove(e)
	m.d.Forget(e.job, m.moment())
}

// remove removes a job that is forgotten. Its newer version is a job from then on.
func (m *model) remove(e *entry) {
	delete(m.jobs, e.record.Ref)
	if newer := e.job.newer; newer != nil {
		m.jobs[newer.Ref] = &entry{record: newer}
		delete(m.newer, newer)
	}
}

func (m *model) cancelSome() {
	m.last = "end"
	if e := m.pick(func(*entry) bool { return true }); e != nil {
		j := m.d.End(e.record.Ref)
		if (j != nil) != (e.state == granted) {
			m.fail("%s was ended, and is in state %d", e.record.Ref, e.state)
		}
		if j != nil {
			e.job, e.state = j, ends
		}
	}
}

// unbegin puts a job back whose handler did not begin, since the lease is in doubt, or lost.
func (m *model) unbegin() {
	m.last = "unbegin"
	e := m.pick(func(e *entry) bool { return e.state == runs && e.began.Equal(m.now) })
	if e == nil {
		return
	}
	if e.state = granted; m.r.IntN(2) == 0 {
		m.d.Return(e.job)
	} else {
		m.d.Requeue(e.job)
		e.exact = false
	}
}

func (m *model) loseLease() {
	m.last = "lose"
	m.d.LoseLease()
}

func (m *model) setFlowControl() {
	m.last = "limits"
	var limits []*driver.StoredLimit
	var pauses []driver.Pause
	was := m.flow.Revision()
	for i := range m.r.IntN(3) {
		l := driver.Limit{PerLane: m.r.IntN(2) == 0, Kind: []string{"", "a", "b"}[m.r.IntN(3)]}
		if m.r.IntN(2) == 0 {
			l.Running = 1 + m.r.IntN(3)
		}
		if l.Running == 0 || m.r.IntN(3) == 0 {
			l.Rate, l.Burst = float64(1+m.r.IntN(200)), 1+m.r.IntN(3)
		}
		limits = append(limits, &driver.StoredLimit{Name: fmt.Sprint("l", i), ID: was + 1 + int64(i), Limit: l})
	}
	if m.r.IntN(4) == 0 {
		p := driver.Pause{Pausable: driver.Pausable{Kind: []string{"", "a", "b"}[m.r.IntN(3)], Lane: []string{"", "x"}[m.r.IntN(2)]}, Since: m.now}
		if m.r.IntN(2) == 0 {
			p.Until = m.now.Add(time.Duration(m.r.IntN(3000)) * time.Millisecond)
		}
		pauses = append(pauses, p)
	}
	m.flow = driver.NewFlowControl(was+10, limits, pauses)
	m.d.SetFlowControl(m.flow, m.moment())
}

func (m *model) free() {
	m.last = "freed"
	for key := range m.d.gates.byKey {
		m.d.Freed(key)
	}
}

// finish lifts all limits, and lets each job end. The last pause ends by itself.
func (m *model) finish() {
	m.flow = driver.NewFlowControl(m.flow.Revision()+10, nil, []driver.Pause{{Since: m.now, Until: m.now.Add(5 * time.Second)}})
	m.sound = true
	m.d.SetFlowControl(m.flow, m.moment())
	m.follow()
	for try := 0; m.d.Counts().Held > 0; try++ {
		if try > 2000 {
			m.fail("%d jobs never end", m.d.Counts().Held)
		}
		m.last = "finish"
		m.advance(time.Second)
		m.follow()
		if m.claims == nil {
			m.ask()
			m.follow()
		}
		if jobs := m.claims; jobs != nil {
			m.claims = nil
			results := make([]driver.ClaimResult, len(jobs))
			for i := range results {
				results[i] = driver.ClaimResult{Status: driver.Granted, Attempt: 1}
			}
			m.answerBy(jobs, results)
			m.follow()
		}
		for _, e := range m.jobs {
			if e.state == runs {
				m.d.Done(e.job, m.moment())
				e.state = ends
			}
		}
		for _, e := range m.jobs {
			if e.state == ends {
				m.forget(e)
			}
		}
		m.follow()
	}
	require.Empty(m.t, m.newer, "newer versions that were neither added nor handed back, seed %d", m.seed)
}
