package timingwheel

import (
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/emirpasic/gods/trees/redblacktree"
	"github.com/stretchr/testify/require"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// model is the dumb reference beside a wheel of one shard. It has all pending tasks in a
// red-black tree, ordered by time and, at one time, by their scheduling. It sees
// every call, and checks every result and every firing as it happens.
//
// mu guards all of it, since the driver's goroutine runs the tasks.
type model struct {
	mu      sync.Mutex
	t       *testing.T
	w       *TimingWheel
	tick    time.Duration
	start   time.Time
	pending *redblacktree.Tree // of key to *modelTask
	tasks   []*modelTask       // all that were ever scheduled
	seq     int
	runs    modelExecutor
	pool    *testPool     // of one worker, if runs says so
	release chan struct{} // closed when the function ends that nothing can pass; nil without one
	freed   time.Duration // when the last of these ended
	driven  bool          // by the driver goroutine or Advance, so that a task fires on its tick
	nested  bool          // tasks schedule, cancel and reset as well
	r       *rand.Rand
	source  *byteSource

	keyed *Keyed[int]
	keys  map[int]*modelTask // what each key was scheduled for last
	group *Group             // replaced when it is stopped

	counts Counts // except Pending and Cascaded

	closed     bool // by Shutdown
	stopped    bool
	handedBack *modelTask
}

// modelExecutor is what runs the tasks. Each keeps their order.
type modelExecutor int

const (
	runsInline     modelExecutor = iota
	runsInlineHeld               // the same, and now and then a function holds the driver up
	runsInPool                   // with fullWait, and now and then the worker is busy
)

// key orders pending tasks. A task that was due at once has a time between ticks; without
// that, its order among the tasks of that tick would not be promised.
type key struct {
	at  time.Duration
	due bool
	seq int

	reset bool // while it was pending
}

func compareKeys(a, b any) int {
	x, y := a.(key), b.(key)
	return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.seq, y.seq))
}

// modelTask is a task in one of the forms that the wheel has. The field that is set says
// which; if none is, it is that of Schedule.
type modelTask struct {
	key     key
	pending bool
	f       func()
	timeout Timeout
	timer   *Timer
	keyed   int    // name among the keys, or 0
	group   *Group // of the timeout or timer, or nil
	job     *modelJob
}

// modelJob is a fixed rate that ends itself after some runs.
type modelJob struct {
	*Job
	planned, period time.Duration
	left            int
}

func (m *model) now() time.Duration { return m.w.Now().Sub(m.start) }

// keyFor computes the deadline by other steps than the wheel does.
func (m *model) keyFor(d time.Duration) key {
	m.seq++
	now := m.now()
	if d <= 0 {
		return key{at: now, due: true, seq: m.seq}
	}
	at := time.Duration(math.MaxInt64)
	if d < at-now {
		at = now + d
	}
	if rest := at % m.tick; rest > 0 {
		if at > math.MaxInt64-(m.tick-rest) {
			at = math.MaxInt64
		} else {
			at += m.tick - rest
		}
	}
	return key{at: at, seq: m.seq}
}

func (m *model) schedule(d time.Duration) {
	task := &modelTask{}
	task.f = func() { m.fired(task) }
	m.tasks = append(m.tasks, task)
	var err error
	if m.closed {
		m.scheduleClosed(task, d)
		return
	}
	switch m.r.IntN(11) {
	case 9, 10:
		err = m.scheduleInGroup(task, d)
	case 8:
		m.tasks = m.tasks[:len(m.tasks)-1]
		err = m.scheduleBatch(task, d)
	case 0:
		err = m.scheduleKey(task, 1+m.r.IntN(3), d)
	case 1:
		err = m.scheduleJob(task, d)
	case 2, 3, 4:
		m.accept(task, d)
		task.timer = m.w.AfterFunc(d, task.f)
	default:
		m.accept(task, d)
		task.timeout, err = m.w.Schedule(d, task.f)
	}
	require.NoError(m.t, err)
}

// scheduleClosed checks that each form is refused, and that what a key was scheduled for
// stays.
func (m *model) scheduleClosed(task *modelTask, d time.Duration) {
	var err error
	task.f = mustNotRun
	switch m.r.IntN(6) {
	case 0:
		_, err = m.keyed.Schedule(1+m.r.IntN(3), d, task.f)
	case 1:
		_, err = m.w.ScheduleAtFixedRate(d, time.Hour, task.f)
	case 2:
		_, err = m.w.ScheduleBatch(nil, []Delayed{{d, task.f}})
	case 3:
		_, err = m.group.Schedule(d, task.f)
	case 4:
		task.timer = m.w.AfterFunc(d, task.f)
		return
	default:
		_, err = m.w.Schedule(d, task.f)
	}
	m.tasks = m.tasks[:len(m.tasks)-1]
	require.Equal(m.t, ErrStopped, err)
}

// shutdown closes the wheel: nothing new is accepted, what is pending can be reset to an
// earlier time only, and jobs have ended. Its context has ended already.
func (m *model) shutdown() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	jobs := 0
	for _, task := range m.tasks {
		if task.job != nil && task.pending {
			m.forget(task)
			m.counts.HandedBack++
			jobs++
		}
	}
	idle := m.pending.Size() == 0 && (m.release == nil || m.pool != nil) // what holds the pool up is no task of the wheel
	for range 1 + m.r.IntN(2) {
		if err := m.w.Shutdown(ctx); idle {
			require.NoError(m.t, err)
		} else {
			require.ErrorIs(m.t, err, context.Canceled)
		}
	}
	m.closed = true
	if idle {
		return // stopped, too
	}
	for _, task := range m.tasks[len(m.tasks)-min(len(m.tasks), 20):] {
		if task.job != nil && !task.pending {
			<-task.job.Done()
		}
	}
}

// refuses reports whether a reset of a task to d from now is refused.
func (m *model) refuses(task *modelTask, d time.Duration) bool {
	if !m.closed {
		return false
	}
	if !task.pending {
		return true
	}
	m.seq-- // only the deadline of keyFor is used
	k := m.keyFor(d)
	return m.onTick(k) > m.onTick(task.key)
}

func (m *model) scheduleKey(task *modelTask, name int, d time.Duration) error {
	task.keyed = name
	old := m.keys[name]
	was := old != nil && old.pending
	if was {
		m.forget(old)
	}
	switch {
	case was && m.isOnWheel(name):
		m.putOff(task, d)
	case was: // it has fired, and will not run
		m.counts.Expired++
		fallthrough
	default:
		m.accept(task, d)
	}
	m.keys[name] = task
	replaced, err := m.keyed.Schedule(name, d, task.f)
	require.Equal(m.t, was, replaced)
	return err
}

// scheduleBatch schedules the task and up to four others together.
func (m *model) scheduleBatch(task *modelTask, d time.Duration) error {
	tasks, batch := []*modelTask{task}, []Delayed{{d, task.f}}
	m.accept(task, d)
	for range m.r.IntN(5) {
		task, d := &modelTask{}, m.delay()
		task.f = func() { m.fired(task) }
		m.accept(task, d)
		tasks, batch = append(tasks, task), append(batch, Delayed{d, task.f})
	}
	timeouts, err := m.w.ScheduleBatch(nil, batch)
	for i, timeout := range timeouts {
		tasks[i].timeout = timeout
	}
	m.tasks = append(m.tasks, tasks...)
	return err
}

// scheduleJob has long periods, since they run however long the model sleeps.
func (m *model) scheduleJob(task *modelTask, d time.Duration) (err error) {
	job := &modelJob{period: time.Hour + 1 + m.delay().Abs()/4, left: 1 + m.r.IntN(4)}
	task.job = job
	job.planned = engine.Later(m.now(), max(0, d))
	m.accept(task, d)
	job.Job, err = m.w.ScheduleAtFixedRate(d, job.period, task.f)
	return err
}

// isOnWheel reports whether a key's function has not been handed to the executor yet.
// Only the accounts depend on it.
func (m *model) isOnWheel(name int) bool {
	s := m.keyed.lock(name)
	defer s.mu.Unlock()
	task, _ := s.tasks.Get(name)
	pending, _ := task.where()
	return pending
}

func (m *model) accept(task *modelTask, d time.Duration) {
	m.counts.Scheduled++
	m.put(task, d)
}

func (m *model) putOff(task *modelTask, d time.Duration) {
	m.counts.Reset++
	m.put(task, d)
	m.pending.Remove(task.key)
	task.key.reset = true
	m.pending.Put(task.key, task)
}

func (m *model) put(task *modelTask, d time.Duration) {
	task.key, task.pending = m.keyFor(d), true
	m.pending.Put(task.key, task)
}

func (m *model) forget(task *modelTask) {
	task.pending = false
	m.pending.Remove(task.key)
}

func (m *model) cancel(task *modelTask) {
	was := task.pending
	if was {
		m.counts.Stopped++
		m.forget(task)
	}
	switch {
	case task.timer != nil:
		require.Equal(m.t, was, task.timer.Stop())
	case task.job != nil:
		require.Equal(m.t, was, task.job.Stop())
	case task.keyed == 0:
		require.Equal(m.t, was, task.timeout.Cancel())
	case m.keys[task.keyed] == task:
		require.Equal(m.t, was, m.keyed.Cancel(task.keyed))
	}
}

func (m *model) reset(task *modelTask, d time.Duration) {
	was := task.pending
	switch {
	case m.refuses(task, d):
		m.resetRefused(task, d)
	case task.timer != nil && task.group != nil && task.group != m.group: // stopped
		require.False(m.t, task.timer.Reset(d))
	case task.timer != nil:
		m.again(task, d)
		require.Equal(m.t, was, task.timer.Reset(d))
	case task.keyed != 0 && m.keys[task.keyed] == task:
		if was {
			m.again(task, d)
		}
		require.Equal(m.t, was, m.keyed.Reset(task.keyed, d))
	case task.job != nil && was:
		task.job.period = time.Hour + d.Abs()/4
		task.job.planned = engine.Later(m.now(), task.job.period)
		m.again(task, task.job.period)
		require.True(m.t, task.job.Reset(task.job.period))
	case task.isTimeout():
		if was {
			m.again(task, d)
		}
		require.Equal(m.t, was, task.timeout.Reset(d))
	}
}

func (m *model) resetRefused(task *modelTask, d time.Duration) {
	switch {
	case task.timer != nil:
		require.False(m.t, task.timer.Reset(d))
	case task.keyed != 0 && m.keys[task.keyed] == task:
		require.False(m.t, m.keyed.Reset(task.keyed, d))
	case task.isTimeout():
		require.False(m.t, task.timeout.Reset(d))
	}
}

// isTimeout reports whether Schedule has made the task.
func (task *modelTask) isTimeout() bool {
	return task.timer == nil && task.keyed == 0 && task.job == nil
}

func (m *model) scheduleInGroup(task *modelTask, d time.Duration) (err error) {
	task.group = m.group
	m.accept(task, d)
	if m.r.IntN(2) == 0 {
		task.timer = m.group.AfterFunc(d, task.f)
	} else {
		task.timeout, err = m.group.Schedule(d, task.f)
	}
	return err
}

// stopGroup stops the group, and goes on with another.
func (m *model) stopGroup() {
	n := 0
	for _, task := range m.tasks {
		if task.group == m.group && task.pending {
			n++
			m.counts.Stopped++
			m.forget(task)
		}
	}
	require.Equal(m.t, n, m.group.Len())
	require.Equal(m.t, n, m.group.Stop())
	require.Zero(m.t, m.group.Len())
	require.Zero(m.t, m.group.Stop())
	_, err := m.group.Schedule(0, mustNotRun)
	require.Equal(m.t, ErrStopped, err)
	m.group = NewGroup(m.w)
}

func mustNotRun() { panic("a task ran that must not") }

// drain takes all keys out, and checks what comes.
func (m *model) drain() {
	onWheel := map[int]bool{}
	for name, task := range m.keys {
		onWheel[name] = task.pending && m.isOnWheel(name)
	}
	for _, p := range m.keyed.Drain() {
		task := m.keys[p.Key]
		require.True(m.t, task.pending)
		require.NotNil(m.t, p.Func)
		require.Equal(m.t, m.onTick(task.key), p.Deadline.Sub(m.start))
		if onWheel[p.Key] {
			m.counts.Stopped++
		} else {
			m.counts.Expired++
		}
		m.forget(task)
	}
	for _, task := range m.keys {
		require.False(m.t, task.pending, "a key was left")
	}
}

// checkDeadline compares the deadline that a handle tells.
func (m *model) checkDeadline(task *modelTask) {
	var at time.Time
	var ok bool
	switch {
	case task.timer != nil:
		at, ok = task.timer.Deadline()
	case task.isTimeout():
		at, ok = task.timeout.Deadline()
	default:
		return
	}
	require.Equal(m.t, task.pending, ok)
	if ok {
		require.Equal(m.t, m.onTick(task.key), at.Sub(m.start))
	} else {
		require.Zero(m.t, at)
	}
}

// again resets a task, which may be pending.
func (m *model) again(task *modelTask, d time.Duration) {
	if !task.pending {
		m.accept(task, d)
		return
	}
	m.forget(task)
	m.putOff(task, d)
}

// fired checks that the task was pending, that its time has come, and that it was
// its turn.
func (m *model) fired(task *modelTask) {
	m.mu.Lock()
	defer m.mu.Unlock()
	require.True(m.t, task.pending, "a task fired twice, or after it was canceled")
	if m.stopped {
		m.forget(task)
		m.handedBack = task
		return
	}
	now := m.now()
	require.LessOrEqual(m.t, task.key.at, now, "early")
	require.Nil(m.t, m.release, "a task ran that had to wait")
	if m.driven {
		require.Equal(m.t, max(task.key.at, m.freed), now, "late, though nothing held the driver up")
	}
	require.Equal(m.t, m.firstLike(task.key), task.key, "out of order")
	m.forget(task)
	m.counts.Expired++
	if task.job != nil {
		m.ran(task)
		return
	}
	if m.nested && len(m.source.data) > 0 && m.r.IntN(3) == 0 {
		m.insideTask(task, now)
	}
}

// firstLike returns the key that has to fire before k, or k. It is the first of the same kind among
// the keys of its tick; a key that was reset fires anywhere among them.
func (m *model) firstLike(k key) key {
	for it := m.pending.Iterator(); it.Next(); {
		switch first := it.Key().(key); {
		case first.at > k.at:
			return k
		case first.at < k.at, !k.reset && !first.reset && first.due == k.due:
			return first
		}
	}
	return k
}

// ran plans the next run of a job as the wheel does after this one has ended.
func (m *model) ran(task *modelTask) {
	job := task.job
	if job.left--; job.left == 0 {
		require.True(m.t, job.Stop())
		return
	}
	job.planned = engine.Later(job.planned, job.period)
	m.accept(task, job.planned-m.now())
}

// insideTask calls the wheel from a task. It does not touch what is due already: that may
// have been handed to the executor together with this task.
func (m *model) insideTask(task *modelTask, now time.Duration) {
	switch m.r.IntN(4) {
	case 0:
		m.schedule(m.delay())
	case 1:
		m.reset(task, m.tick+m.delay()/2)
	default:
		if other := m.tasks[m.r.IntN(len(m.tasks))]; !other.pending || other.key.at > now {
			m.cancel(other)
		}
	}
}

// delay is now and then zero, negative or the largest. Otherwise it has any magnitude up
// to years.
func (m *model) delay() time.Duration {
	switch m.r.IntN(20) {
	case 0:
		return 0
	case 1:
		return -time.Duration(m.r.Int64())
	case 2:
		return math.MaxInt64
	case 3:
		return time.Duration(m.r.IntN(5)) * m.tick
	}
	return time.Duration(m.r.Int64N(1 << (10 + m.r.IntN(46))))
}

// check compares the remaining tasks with those of the model.
func (m *model) check() {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.w.verify(m.t)
	require.Equal(m.t, m.pending.Size(), m.w.Len())
	m.checkCounts()
	if m.seq%4 == 0 { // not always: it takes longer than all the rest
		m.checkSnapshot(m.seq % 20)
	}
	if m.release == nil {
		require.Zero(m.t, m.w.Stats().Running)
	}
	keys := 0
	for name, task := range m.keys {
		at, ok := m.keyed.Deadline(name)
		require.Equal(m.t, task.pending, ok)
		if ok {
			keys++
			require.Equal(m.t, m.onTick(task.key), at.Sub(m.start))
		}
	}
	require.Equal(m.t, keys, m.keyed.Len())
	for name, at := range m.keyed.All() {
		require.Equal(m.t, m.onTick(m.keys[name].key), at.Sub(m.start))
		keys--
	}
	require.Zero(m.t, keys, "keys that All did not yield")
	for _, task := range m.tasks[max(0, len(m.tasks)-20):] {
		m.checkDeadline(task)
	}
	if left := m.pending.Left(); left != nil && m.driven && m.release == nil {
		require.Greater(m.t, left.Key.(key).at, m.now(), "a task is overdue")
	}
}

// checkCounts compares the accounts.
func (m *model) checkCounts() {
	m.t.Helper()
	st := m.w.Stats()
	checkStats(m.t, st)
	got, want := st.Counts, m.counts
	want.Pending, want.Cascaded = int64(m.pending.Size()), got.Cascaded
	if !m.stopped { // a reset without the lock is counted later
		require.LessOrEqual(m.t, got.Reset, want.Reset)
		want.Reset = got.Reset
	}
	require.Equal(m.t, want, got)
}

// checkSnapshot compares the next deadlines.
func (m *model) checkSnapshot(next int) {
	sn := m.w.Snapshot(next)
	checkSnapshot(m.t, sn, next)
	require.EqualValues(m.t, m.pending.Size(), sn.Pending)
	it := m.pending.Iterator()
	for _, at := range sn.Next {
		require.True(m.t, it.Next())
		require.Equal(m.t, m.onTick(it.Key().(key)), at.Sub(m.start))
	}
}

// settle lets everything fire that is due.
func (m *model) settle() {
	switch {
	case m.w.engine().Clock().IsManual():
		m.w.Advance(0)
		return
	case m.driven:
		synctest.Wait()
		return
	}
	for m.drive(); m.pending.Size() > 0; m.drive() {
		left := m.pending.Left().Key.(key)
		if left.at > m.now() || m.release != nil {
			return
		}
		require.True(m.t, m.pool != nil || left.due && left.at == m.now(), "overdue, and not added without delay by a task just now")
	}
}

func (m *model) drive() {
	m.w.Drive(0)
	synctest.Wait() // a Pool has a goroutine
}

// hold runs a function that nothing can pass, or ends it.
func (m *model) hold() {
	switch {
	case m.release != nil:
		m.freed = m.now()
		close(m.release)
		m.release = nil
		return
	case m.closed || m.runs == runsInline || m.pending.Size() > 0 && m.pending.Left().Key.(key).at <= m.now():
		return
	}
	m.release = make(chan struct{})
	release := m.release
	if m.pool != nil {
		m.pool.Execute([]func(){func() { <-release }})
		return
	}
	m.counts.Scheduled++
	m.counts.Expired++
	_, err := m.w.Schedule(0, func() { <-release })
	require.NoError(m.t, err)
}

// burst makes room in the arena for thousands, of which few are left: so it moves these.
func (m *model) burst() {
	const most = 6 * 1024
	r := rand.New(rand.NewPCG(m.r.Uint64(), 0))
	n := 3*1024 + r.IntN(most-3*1024)
	var timeouts []Timeout
	for i := range n {
		if i%500 == 0 && m.pending.Size() < engine.SliceLen {
			task := &modelTask{} // not by schedule, whose batches have delays of zero: these fire meanwhile
			task.f = func() { m.fired(task) }
			m.tasks = append(m.tasks, task)
			require.NoError(m.t, m.scheduleInGroup(task, 1+m.delay().Abs()/2))
		}
		timeout, err := m.w.Schedule(time.Hour<<(i%4), mustNotRun)
		require.NoError(m.t, err)
		timeouts = append(timeouts, timeout)
	}
	r.Shuffle(n, func(i, j int) { timeouts[i], timeouts[j] = timeouts[j], timeouts[i] })
	for i, timeout := range timeouts {
		require.True(m.t, timeout.Cancel())
		if i%500 == 0 {
			task := m.tasks[r.IntN(len(m.tasks))]
			m.reset(task, 1+m.delay().Abs()/2)
			require.Equal(m.t, i < n-1, timeouts[n-1].Reset(time.Hour<<r.IntN(4)))
			if i < n-1 {
				m.counts.Reset++
			}
		}
	}
	m.counts.Scheduled += int64(n)
	m.counts.Stopped += int64(n)
}

// stop checks that what Stop hands back is what did not fire and was not
// canceled, with its deadline.
func (m *model) stop() {
	m.counts.HandedBack += int64(m.pending.Size())
	pending := m.w.Stop()
	m.stopped = true
	for _, p := range pending {
		m.handedBack = nil
		p.Func() // functions cannot be compared; this one says which task it is of
		require.NotNil(m.t, m.handedBack)
		require.Equal(m.t, m.onTick(m.handedBack.key), p.Deadline.Sub(m.start))
	}
	for _, task := range m.tasks {
		if task.job != nil && task.pending { // ends, and is not handed back
			m.forget(task)
			<-task.job.Done()
			require.Equal(m.t, ErrStopped, task.job.Err())
		}
	}
	require.Zero(m.t, m.keyed.Len())
	require.Zero(m.t, m.pending.Size(), "neither fired nor canceled nor handed back")
	require.Zero(m.t, m.w.Len())
	require.Nil(m.t, m.w.Stop())
	m.checkCounts()
	requireAccounts(m.t, m.w.Stats())
	m.w.verify(m.t)
	m.end()
	require.NoError(m.t, m.w.Shutdown(m.t.Context()))
	if m.pool != nil {
		m.pool.Close()
		requireIdle(m.t, m.pool)
	}
}

// end lets all goroutines end, also when something has failed.
func (m *model) end() {
	m.w.Stop()
	if m.release != nil {
		close(m.release)
		m.release = nil
	}
}

// onTick returns the time of a key, rounded up to a tick.
func (m *model) onTick(k key) time.Duration {
	if rest := k.at % m.tick; k.due && rest > 0 {
		return k.at + min(m.tick-rest, math.MaxInt64-k.at)
	}
	return k.at
}

// mode is who drives the wheel.
type mode byte

const (
	driverGoroutine mode = iota
	manualDrive
	manualClock
	modes
)

// runModel makes a wheel and a sequence of calls from data, until it is used up,
// and steps the model beside the wheel.
func runModel(t *testing.T, data []byte, mode mode) {
	source := &byteSource{data: data}
	r := rand.New(source)
	ticks := []time.Duration{time.Microsecond, 10 * time.Microsecond, time.Millisecond, 7 * time.Millisecond, time.Second, time.Hour, math.MaxInt64}
	sizes := []int{2, 2, 3, 4, 8, 64, 512}
	tick, size := ticks[r.IntN(len(ticks))], sizes[r.IntN(len(sizes))]
	runs := modelExecutor(r.IntN(3))
	opts := []Option{WithTick(tick), WithWheelSize(size), WithShards(1), WithExecutor(Inline()), WithMaxPending(math.MaxInt)}
	opts = append(opts, WithProfileRate(int(mode))) // none, all, and half
	switch mode {
	case manualDrive:
		opts = append(opts, WithManualDrive())
		runs = runsInline // Drive would wait for a function that is held, and no Pool of pool.Wait goes with it
	case manualClock:
		runs = runsInline // Advance waits for no other
		opts = append(opts, WithManualClock(time.Date(1969, 7, 20, 20, 17, 40, 0, time.UTC)))
	}
	synctest.Test(t, func(t *testing.T) {
		var pool *testPool
		if runs == runsInPool {
			pool = newPool(1, 0, fullWait)
			opts = append(opts, WithExecutor(pool))
		}
		m := &model{
			t: t, tick: tick, w: New(opts...),
			pending: redblacktree.NewWith(compareKeys),
			runs:    runs, pool: pool, driven: mode != manualDrive, nested: r.IntN(2) == 0, r: r, source: source,
			keys: map[int]*modelTask{},
		}
		m.start = m.w.Now()
		defer m.end()
		m.keyed = NewKeyed[int](m.w)
		m.group = NewGroup(m.w)
		for len(source.data) > 0 {
			m.sleep(m.act())
			m.settle()
			m.check()
		}
		m.stop()
	})
}

// act makes one call, or says how long to sleep.
func (m *model) act() (sleep time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch op := m.r.IntN(10); {
	case op < 4 && m.pending.Size() < engine.SliceLen: // a longer cascade has no order
		m.schedule(m.delay())
	case op < 6 && len(m.tasks) > 0:
		m.cancel(m.tasks[m.r.IntN(len(m.tasks))])
	case op < 8 && len(m.tasks) > 0:
		m.reset(m.tasks[m.r.IntN(len(m.tasks))], m.delay())
	case op == 8 && m.r.IntN(8) == 0:
		m.drain()
	case op == 8 && m.r.IntN(8) == 0:
		m.stopGroup()
	case op == 8 && m.r.IntN(3) == 0:
		m.hold()
	case op == 8 && m.r.IntN(8) == 0 && !m.closed:
		m.burst()
	case op == 8 && m.r.IntN(30) == 0:
		m.shutdown()
	case op == 8:
		return time.Duration(m.r.Int64N(1 << (10 + m.r.IntN(46))))
	case op == 9 && m.pending.Size() > 0:
		// Up to the instant of a deadline, or just short of it.
		return m.pending.Left().Key.(key).at - m.now() - time.Duration(m.r.IntN(2))
	}
	return 0
}

// sleep stays within the 290 years that a synctest clock has.
func (m *model) sleep(d time.Duration) {
	switch {
	case m.now() >= 1<<61 || d >= 1<<56:
	case m.w.engine().Clock().IsManual():
		m.w.Advance(max(0, d))
	default:
		time.Sleep(d)
	}
}

// byteSource is a source of random numbers that a fuzzer can steer: four bytes of data
// for each number. When the data is used up, other numbers follow: some methods of
// rand.Rand reject numbers, and would never end if all were the same.
type byteSource struct {
	data []byte
	rest rand.PCG
}

func (s *byteSource) Uint64() uint64 {
	if len(s.data) == 0 {
		return s.rest.Uint64()
	}
	var four [4]byte
	s.data = s.data[copy(four[:], s.data):]
	n := uint64(binary.LittleEndian.Uint32(four[:]))
	return n<<32 | n
}

func randomBytes(seed uint64, n int) []byte {
	data := make([]byte, n)
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

func TestModelManualDrive(t *testing.T) {
	for seed := range uint64(unlessShort(60, 10)) {
		runModel(t, randomBytes(seed, 3000), manualDrive)
	}
}

func TestModelDriver(t *testing.T) {
	for seed := range uint64(unlessShort(60, 10)) {
		runModel(t, randomBytes(seed, 3000), driverGoroutine)
	}
}

func TestModelManualClock(t *testing.T) {
	for seed := range uint64(unlessShort(60, 10)) {
		runModel(t, randomBytes(seed, 3000), manualClock)
	}
}

func FuzzModel(f *testing.F) {
	for seed := range uint64(4) {
		for mode := range modes {
			f.Add(randomBytes(seed, 500), byte(mode))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, choice byte) {
		if len(data) > 4000 {
			t.Skip("longer sequences find nothing that shorter ones do not")
		}
		runModel(t, data, mode(choice)%modes)
	})
}
