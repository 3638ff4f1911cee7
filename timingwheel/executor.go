package timingwheel

import "github.com/tickwheel/tickwheel/timingwheel/internal/run"

// Executor runs tasks whose time has come.
//
// The driver calls Execute with one or more tasks, in the order in which they are to
// begin. It makes one call at a time, unless several wheels share the executor. It holds
// no lock, so that a task may call any method of the wheel. Execute may change the slice,
// but must not keep it: the driver uses it again.
//
// While Execute blocks, no other function of the wheel is handed on: those that come due
// meanwhile wait, pending. Channels, tickers and contexts fire all the same, but not
// under manual drive, where they wait for the caller of Drive or Advance. Adding,
// canceling and Stop go on.
//
// Execute must ensure that each task is run in the end. A task that it drops is lost, and
// Shutdown waits for it. If it is the task of a [Job], a [Future], a key of [Keyed] or a
// [Group], these wait for it too, until they are stopped or canceled. (A pool.Pool with
// pool.Discard tells them.) A pool that may refuse a task is a [SubmitFunc].
//
// A task runs only once, however often it is called. If Execute panics or ends its
// goroutine, the tasks that have not begun run as those that a [SubmitFunc] has refused.
// The panic goes on: it crashes the program, unless the caller of Drive or Advance
// recovers it.
//
// Each task costs two allocations; the executors of this package need none. The driver may
// be in Execute, or about to call it, when Stop returns.
type Executor interface {
	Execute(tasks []func())
}

// ExecutorFunc makes an Executor of a function that is called on the driver with one task
// after the other, such as the submit method of a goroutine pool that takes every task. It
// may run the task itself, under the conditions of [Inline]. It may block, as the submit
// method of a full pool may; [Executor] says which functions wait then.
type ExecutorFunc func(task func())

// Execute calls f(task) for each task.
func (f ExecutorFunc) Execute(tasks []func()) { run.Each(tasks, f) }

// SubmitFunc makes an Executor of the submit method of a goroutine pool that may refuse a
// task, because it is full or closed:
//
//	timingwheel.WithExecutor(timingwheel.SubmitFunc(antsPool.Submit))
//
// It is an [ExecutorFunc] that returns an error if it does not take the task. Such a task
// is not lost: it runs on a goroutine of the wheel, as under [Goroutines], and not on the
// driver. So the bound of a pool that refuses tasks is no bound of the wheel: use a submit
// method that blocks, or a pool.Pool. Refused of [Stats] counts these tasks, and
// [WithLogger] logs the error, at most once a minute.
//
// A task runs once, even if f runs it and returns an error, or keeps a refused task and calls
// it later.
type SubmitFunc func(task func()) error

// Execute calls f(task) for each task. It runs those that f refuses on goroutines of their
// own. Nothing counts or logs them: a wheel that has f itself as its executor does.
func (f SubmitFunc) Execute(tasks []func()) { run.Refuser{Submit: f}.Execute(tasks) }

// Goroutines returns an Executor that runs each task on a goroutine that is the
// task's alone until it returns: a task that blocks delays no other, and one that
// panics crashes the program, as with time.AfterFunc. This is the default. The
// order in which tasks begin is nearly that of their deadlines, but not promised.
//
// Tasks that return take turns on a goroutine, which shows only in state that is kept by
// goroutine. pprof labels are cleared between tasks. Before a task returns, it must undo
// runtime.LockOSThread and debug.SetPanicOnFault, and all changes of its thread. A task that
// cannot undo them starts a goroutine for them: if that ends while it is locked, its thread ends too.
// Or each task has a goroutine, ExecutorFunc(func(task func()) { go task() }). (To find out whether a
// task has left the goroutine locked takes 4us, a trace of the stack, for each task.) A stack
// that has grown stays grown for the next task.
//
// The executor has a queue of its own, without bound, and no goroutine while nothing is
// due. The number of its goroutines has no bound either: 100,000 tasks that block are
// 100,000 goroutines. A task may end its goroutine (runtime.Goexit). One executor may
// serve several wheels; in a synctest bubble, only those of that bubble.
func Goroutines() Executor { return run.NewQueue(nil) }

// Inline returns an Executor that runs tasks on the driver, one after the other. It is
// the cheapest, and keeps the tasks of one shard in order. It is for short functions that
// do not block: a function that takes long delays every other function of the wheel by as
// much.
//
// Channels, tickers, Sleep and contexts do not wait for a function: they fire while it
// runs. So a task may use Sleep, or wait for a context of its own wheel. A task that
// waits for another function of the wheel waits for ever: for a Future, for Shutdown or
// for StopWait. (With [WithManualDrive] or [WithManualClock], nothing fires while a task
// runs. Then a task that waits for anything of its own wheel waits for ever.)
//
// The pprof labels of the goroutine are cleared after each task. Under manual drive these
// include the labels that the caller of Drive had set.
func Inline() Executor { return run.Inline{} }
