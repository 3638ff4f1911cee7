//go:build unix

package timingwheel_test

import (
	"bufio"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// pauseFor is how long a process is stopped: 150 periods.
const pauseFor = 150 * period

// A signal stops a process with timers of all kinds pending, most of which come due meanwhile. When
// it continues, no timer is lost and none was early. Recurring timers treat the missed times as
// they promise.
func TestPausedProcess(t *testing.T) {
	if pause, err := time.ParseDuration(os.Getenv("TICKWHEEL_PAUSE")); err == nil {
		u := newUnderPressure(t, pause)
		u.start()
		os.Stdout.WriteString("ready\n")
		u.wait()
		require.Greater(t, time.Duration(u.worst.Load()), pause/2, "the process was not stopped")
		u.checkMissed(pause)
		return
	}
	t.Parallel() // it waits for the child
	cmd := child(t, "TICKWHEEL_PAUSE="+pauseFor.String())
	out := startUntilReady(t, cmd)
	require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
	var status syscall.WaitStatus
	_, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
	require.NoError(t, err)
	require.True(t, status.Stopped(), "%v", status)
	time.Sleep(pauseFor)
	require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	rest := out.rest()
	require.NoError(t, cmd.Wait(), "%s", rest)
}

// Other goroutines never give up the only processor of a process. The driver and the
// tasks run when the scheduler takes it from them.
func TestStarvedProcess(t *testing.T) {
	if os.Getenv("TICKWHEEL_STARVE") != "" {
		var done atomic.Bool
		for range 4 {
			go func() {
				for !done.Load() {
				}
			}()
		}
		u := newUnderPressure(t, time.Second)
		u.start()
		u.wait()
		done.Store(true)
		u.checkMissed(0)
		return
	}
	t.Parallel() // it waits for the child
	out, err := child(t, "TICKWHEEL_STARVE=1", "GOMAXPROCS=1").CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// child is this test in a process of its own.
func child(t *testing.T, env ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

type output struct{ *bufio.Scanner }

func startUntilReady(t *testing.T, cmd *exec.Cmd) output {
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	out := output{bufio.NewScanner(pipe)}
	for out.Scan() && out.Text() != "ready" {
	}
	require.Equal(t, "ready", out.Text())
	return out
}

func (o output) rest() string {
	var b strings.Builder
	for o.Scan() {
		b.WriteString(o.Text() + "\n")
	}
	return b.String()
}

// underPressure has timers of all kinds on a wheel, and what recurs. All timers are due
// within a span that is one second longer than the pause.
type underPressure struct {
	t     *testing.T
	w     *timingwheel.TimingWheel
	span  time.Duration
	begin time.Time
	wg    sync.WaitGroup // all that is to fire
	worst atomic.Int64   // lateness

	ticks atomic.Int64
	jobs  []*recurring
}

const period = 20 * time.Millisecond

// recurring is a job.
type recurring struct {
	name string
	runs atomic.Int64
}

func newUnderPressure(t *testing.T, pause time.Duration) *underPressure {
	return &underPressure{t: t, w: timingwheel.New(), span: pause + time.Second, begin: time.Now()}
}

// fired is what each timer must call once, and not before it is due. If one is called
// twice, WaitGroup.Done panics.
func (u *underPressure) fired(kind string, due time.Time) {
	late := time.Since(due)
	if late < 0 {
		u.t.Errorf("%s: %v early", kind, -late)
	}
	for worst := u.worst.Load(); int64(late) > worst && !u.worst.CompareAndSwap(worst, int64(late)); worst = u.worst.Load() {
	}
	u.wg.Done()
}

func (u *underPressure) start() {
	keyed := timingwheel.NewKeyed[int](u.w)
	for n := range 2000 {
		u.wg.Add(4)
		due := time.Now().Add(time.Duration(rand.Int64N(int64(u.span))))
		u.w.ScheduleAt(due, func() { u.fired("ScheduleAt", due) })
		u.w.AfterFunc(time.Hour, func() { u.fired("AfterFunc", due) }).Reset(time.Until(due))
		keyed.Schedule(n, time.Until(due), func() { u.fired("Keyed", due) })
		timingwheel.Submit(u.w, time.Until(due), func(context.Context) (int, error) {
			u.fired("Submit", due)
			return n, nil
		})
	}
	for range 100 {
		u.wg.Add(4)
		due := time.Now().Add(time.Duration(rand.Int64N(int64(u.span))))
		ctx, _ := u.w.WithDeadline(context.Background(), due)
		timer, after := u.w.NewTimer(time.Until(due)), u.w.After(time.Until(due))
		go func() { u.w.Sleep(time.Until(due)); u.fired("Sleep", due) }()
		go func() { <-timer.C; u.fired("NewTimer", due) }()
		go func() { <-after; u.fired("After", due) }()
		go func() {
			<-ctx.Done()
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				u.t.Error(ctx.Err())
			}
			u.fired("WithDeadline", due)
		}()
	}
	u.startRecurring()
}

func (u *underPressure) startRecurring() {
	ticker := u.w.NewTicker(period)
	go func() {
		for range ticker.C {
			u.ticks.Add(1)
		}
	}()
	rate := func(name string, opts ...timingwheel.JobOption) {
		u.job(name, func(f func()) (*timingwheel.Job, error) {
			return u.w.ScheduleAtFixedRate(period, period, f, opts...)
		})
	}
	rate("burst")
	rate("skip", timingwheel.OnMissed(timingwheel.MissedSkip))
	rate("delay", timingwheel.OnMissed(timingwheel.MissedDelay))
	u.job("fixed delay", func(f func()) (*timingwheel.Job, error) {
		return u.w.ScheduleWithFixedDelay(period, period, f)
	})
	u.job("calendar", func(f func()) (*timingwheel.Job, error) { return u.w.ScheduleFunc(every(period), f) })
}

type every time.Duration

func (e every) Next(prev time.Time) time.Time { return prev.Add(time.Duration(e)) }

func (u *underPressure) job(name string, start func(f func()) (*timingwheel.Job, error)) {
	j := &recurring{name: name}
	_, err := start(func() { j.runs.Add(1) })
	require.NoError(u.t, err)
	u.jobs = append(u.jobs, j)
}

// wait waits until all has fired, and what recurs has gone on for a while.
func (u *underPressure) wait() {
	u.wg.Wait()
	ticks := u.ticks.Load()
	waitFor(u.t, func() bool { return u.ticks.Load() > ticks+2 })
	for _, j := range u.jobs {
		runs := j.runs.Load()
		waitFor(u.t, func() bool { return j.runs.Load() > runs+2 })
	}
}

// checkMissed checks what has become of the times that passed in a pause. A burst makes
// up for all of them, and the other policies for none.
func (u *underPressure) checkMissed(pause time.Duration) {
	until := func() int64 { return int64(time.Since(u.begin) / period) }
	burst, skip := u.jobs[0], u.jobs[1]
	missed := int64(pause / period)
	if missed > 0 { // beside the other job, since on a busy machine no job keeps up with the clock
		waitFor(u.t, func() bool { return burst.runs.Load() >= skip.runs.Load()+missed/2 })
	}
	for _, j := range u.jobs {
		u.t.Logf("%s: %d runs in %d periods, of which %d were missed", j.name, j.runs.Load(), until(), missed)
		most := until() + 1
		if j != burst {
			most += 2 - missed // one that was under way, and one at once
		}
		require.LessOrEqual(u.t, j.runs.Load(), most, j.name)
		require.Positive(u.t, j.runs.Load(), j.name)
	}
	require.LessOrEqual(u.t, u.ticks.Load(), until()+3-missed)
	require.LessOrEqual(u.t, u.w.Len(), len(u.jobs)+1, "but for the jobs and the ticker all has fired")
	require.Empty(u.t, u.w.Stop())
}
