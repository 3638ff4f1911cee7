package timingwheel

import (
	"context"
	"time"

	"github.com/tickwheel/tickwheel/internal/nocopy"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// Group holds functions that end together: those of a connection, a session or a request.
// Make one with [NewGroup]. All methods are safe for concurrent use, and may be called
// from inside a function of the group.
//
//	timers := timingwheel.NewGroup(w)
//	defer timers.Stop() // when the connection is closed
//	timers.AfterFunc(time.Minute, func() { conn.Close() })
//
// All functions of a group wait on one shard of the wheel, so that one lock guards them.
// So a group suits the timers of one goroutine or a few. If all goroutines of a server
// add to one group, they wait for one another.
//
// A group that is forgotten is garbage once none of its functions is pending. It need not
// be stopped. A Group must not be copied.
type Group struct {
	_ nocopy.Mark

	door     engine.Handle // leads to the shard; it is never added
	addTimer groupAdder    // add, made once for all Timers

	// The shard's lock guards these.
	members groupTask // root of the ring of those whose function has not begun, the oldest next
	len     int       // members in the ring
	running int       // functions that have begun and have not ended
	stopped bool
	idle    chan struct{} // closed once the group is stopped and nothing runs; nil until StopWait
	spare   *groupTask    // linked through next
	spares  int
}

// maxSpares is how many members a group keeps for reuse: enough for a connection.
const maxSpares = 16

// groupTask is a function of a group, from its adding until it begins or is canceled.
// After that it is used again for another function, since it and its task cost an
// allocation each.
type groupTask struct {
	group      *Group
	task       func() // due
	f          func() // nil once it will not run
	entry      engine.Handle
	queued     bool // handed to the executor
	next, prev *groupTask
}

// NewGroup returns an empty group on the wheel. There may be any number. It takes two
// allocations of some 200 bytes. NewGroup panics on a nil wheel.
func NewGroup(w *TimingWheel) *Group {
	if w == nil {
		panic("timingwheel: NewGroup(nil)")
	}
	g := new(Group)
	g.addTimer = g.add
	g.members.next, g.members.prev = &g.members, &g.members
	e, _ := w.here()
	g.door.Join(e)
	g.door.UnlockShard()
	return g
}

// AfterFunc arranges for f to run once, d from now, as [TimingWheel.AfterFunc] does, as a
// function of the group. The Timer can be stopped and reset as ever, also after it has
// fired; but not once the group is stopped. On a stopped group or wheel, and where
// [WithMaxPending] permits no more, the function never runs, and Stop and Reset of the
// Timer return false. A nil f panics.
//
// O(1). It allocates the Timer, and what Schedule allocates.
func (g *Group) AfterFunc(d time.Duration, f func()) *Timer {
	if f == nil {
		panic("timingwheel: Group.AfterFunc: nil function")
	}
	after := g.door.After(d)
	t := &groupTimer{special: special{f: f, add: g.addTimer}}
	t.become(&t.special)
	g.door.LockShard()
	defer g.door.UnlockShard()
	var err error
	if t.entry, err = g.add(after, f, (*engine.Handle).Accept); err != nil {
		t.special.f = nil
	}
	return &t.Timer
}

// groupTimer is a Timer of a group, in one allocation.
type groupTimer struct {
	Timer
	special special
}

// Schedule arranges for f to run once, d from now, as [TimingWheel.Schedule] does, as a
// function of the group. It returns [ErrStopped] on a stopped group or wheel, and
// [ErrTooManyPending] where [WithMaxPending] permits no more. A nil f panics.
//
// O(1). It allocates 96 bytes, unless it can use again those of a function that has begun
// or was canceled. The group keeps those of up to 16 such functions.
func (g *Group) Schedule(d time.Duration, f func()) (Timeout, error) {
	if f == nil {
		panic("timingwheel: Group.Schedule: nil function")
	}
	after := g.door.After(d)
	g.door.LockShard()
	defer g.door.UnlockShard()
	e, err := g.add(after, f, (*engine.Handle).Accept)
	if err != nil {
		return Timeout{}, err
	}
	return Timeout(e), nil
}

// Stop ends the group. It cancels all of its functions that have not begun, also those
// that wait in the executor's queue, and returns how many: these will not run. It does
// not wait for functions that have begun; StopWait does. A function that is scheduled on the
// group afterwards is refused with [ErrStopped], and its Timers can no longer be reset.
//
// Stop may be called any number of times, also from a function of the group. Later calls
// return 0. Functions that the wheel's Stop has handed back do not count. O(functions). It
// releases the lock of the shard after every 256 of them.
func (g *Group) Stop() (canceled int) {
	g.door.LockShard()
	defer g.door.UnlockShard()
	if g.stopped {
		return 0
	}
	g.stopped = true
	for g.members.next != &g.members {
		g.cancelFirst()
		if canceled++; canceled%engine.SliceLen == 0 {
			g.door.RelockShard()
		}
	}
	g.spare, g.spares = nil, 0
	return canceled
}

// StopWait calls Stop, and then waits until the functions that have begun have ended. It
// returns nil then, and context.Cause(ctx) if ctx ends first. A function of the group
// that calls StopWait waits for itself until ctx ends.
func (g *Group) StopWait(ctx context.Context) error {
	g.Stop()
	idle := g.whenIdle()
	if idle == nil {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Len returns how many functions of the group have not begun: those that are pending and
// those that wait in the executor's queue. O(1).
func (g *Group) Len() int {
	g.door.LockShard()
	defer g.door.UnlockShard()
	return g.len
}

// whenIdle returns a channel that is closed once no function of the group runs, and nil if
// none does. The group must be stopped: after that none begins.
func (g *Group) whenIdle() <-chan struct{} {
	g.door.LockShard()
	defer g.door.UnlockShard()
	if g.running == 0 {
		return nil
	}
	if g.idle == nil {
		// A channel that is made in a bubble cannot be closed outside.
		g.door.Clock().MustFit("timingwheel: Group.StopWait in this testing/synctest bubble waits for a function outside: make the group in the bubble, or wait outside")
		g.idle = make(chan struct{})
	}
	return g.idle
}

// ended counts a function that has ended.
func (g *Group) ended() {
	g.door.LockShard()
	defer g.door.UnlockShard()
	if g.running--; g.running == 0 && g.idle != nil {
		close(g.idle)
	}
}

// The caller of the methods that follow holds the shard's lock.

// add adds a function and returns its entry.
func (g *Group) add(after engine.Delay, f func(), add adder) (engine.Handle, error) {
	if g.stopped {
		return g.door.Sibling(), ErrStopped
	}
	m := g.newMember()
	if err := add(&m.entry, after, m.task, engine.Internal|engine.OneShot); err != nil {
		g.keep(m)
		return g.door.Sibling(), err
	}
	m.f = f
	g.link(m)
	return m.entry, nil
}

func (g *Group) newMember() *groupTask {
	m := g.spare
	if m == nil {
		m = &groupTask{group: g, entry: g.door.Sibling()}
		m.task = m.due
		return m
	}
	g.spare = m.next
	g.spares--
	m.next = nil
	return m
}

// keep keeps a groupTask for reuse. It must not be in the ring, and neither the wheel nor
// the executor may have it.
func (g *Group) keep(m *groupTask) {
	if g.spares < maxSpares && !g.stopped {
		m.next, g.spare = g.spare, m
		g.spares++
	}
}

func (g *Group) link(m *groupTask) {
	last := g.members.prev
	m.prev, m.next = last, &g.members
	last.next, g.members.prev = m, m
	g.len++
}

// unlink takes a groupTask out of the ring and lets go of its function.
func (g *Group) unlink(m *groupTask) (f func()) {
	m.prev.next, m.next.prev = m.next, m.prev
	m.next, m.prev = nil, nil
	g.len--
	f, m.f = m.f, nil
	return f
}

// cancelFirst sees to it that the oldest function does not run. If the executor has its
// task, the task will find that the function is gone.
func (g *Group) cancelFirst() {
	m := g.members.next
	if !m.entry.Cancel() { // which calls due
		g.unlink(m)
	}
}

// due is the wheel's own task. It hands the function to the executor. If the wheel was
// stopped first, it hands the function back to Stop. If the entry was canceled, it only
// lets go of the function.
func (m *groupTask) due() {
	g := m.group
	switch {
	case m.entry.Canceled():
		g.unlink(m)
		g.keep(m)
	case m.entry.Stopped():
		m.entry.HandBack(m.entry.Deadline(), m.f)
		g.unlink(m)
	default:
		m.queued = true
		m.entry.Execute(m)
	}
}

// The methods that follow take the shard's lock themselves.

// Run is the task that the executor runs.
func (m *groupTask) Run() {
	g := m.group
	f := m.begin(1)
	if f == nil {
		return
	}
	defer g.ended() // deferred, in case f ends its goroutine
	f()
}

// Discard takes the function from its group.
func (m *groupTask) Discard() func() { return m.begin(0) }

// begin returns the function if it may begin, and adds runs to those that run. Until then
// Stop of the group wins: it has canceled the function, or is about to.
func (m *groupTask) begin(runs int) (f func()) {
	g := m.group
	g.door.LockShard()
	defer g.door.UnlockShard()
	if !m.queued || g.stopped {
		return nil
	}
	m.queued = false
	g.running += runs
	f = g.unlink(m)
	g.keep(m)
	return f
}
