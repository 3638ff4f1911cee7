package timingwheel

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// each is the Scheduler of a job at each multiple of a period.
func each(period time.Duration) Scheduler {
	return schedulerFunc(func(prev time.Time) time.Time { return prev.Truncate(period).Add(period) })
}

const (
	day  = 24 * time.Hour
	year = 365 * day
)

// counted is a Scheduler that counts its calls.
type counted struct {
	Scheduler
	calls atomic.Int64
}

func (c *counted) Next(prev time.Time) time.Time {
	c.calls.Add(1)
	return c.Scheduler.Next(prev)
}

// A wall clock that was ahead is put right: the job goes on at the next time of the right
// clock, whether it has run or not, and whether there is a notice or not. It asks its
// Scheduler a few times for this.
func TestClockThatWasAhead(t *testing.T) {
	for _, ahead := range []time.Duration{2 * time.Hour, 13*time.Hour + 40*time.Second, day, 10 * year, 200 * year} {
		for _, period := range []time.Duration{time.Minute, time.Hour} {
			for _, before := range []time.Duration{0, 7 * time.Second, period - time.Second, period + 7*time.Second, 5*period + period/2} {
				for _, inRun := range []bool{false, true} {
					for _, hasNotice := range []bool{false, true} {
						missed := []MissedPolicy{MissedBurst, MissedSkip, MissedDelay}[int(before/time.Second)%3]
						t.Run(fmt.Sprint(ahead, period, before, inRun, hasNotice, missed), func(t *testing.T) {
							inWall(t, func(t *testing.T, w *TimingWheel, log *timeLog, step *atomic.Int64, notice *notices) {
								notice.refusing = !hasNotice
								step.Store(int64(ahead))
								var putRight atomic.Bool // in the next run
								s := &counted{Scheduler: each(period)}
								job := mustJob(t)(w.ScheduleFunc(s, func() {
									log.note()
									if putRight.CompareAndSwap(true, false) {
										step.Store(0)
										notice.give(nil)
									}
								}, OnMissed(missed)))
								time.Sleep(before)
								log.take()
								if inRun {
									putRight.Store(true)
									for putRight.Load() {
										time.Sleep(time.Second)
									}
									log.take()
								} else {
									step.Store(0)
									notice.give(nil)
								}
								calls, from := s.calls.Load(), time.Now()
								time.Sleep(30 * period)
								synctest.Wait()
								runs := log.take()
								if !hasNotice && len(runs) == 31 { // nobody saw which clock showed the first: it comes, late
									require.Less(t, runs[0]-from.Sub(log.start), lookInterval)
									runs = runs[1:]
								}
								require.Len(t, runs, 30)
								for i, at := range runs {
									right := from.Truncate(period).Add(time.Duration(i+1) * period)
									late := log.start.Add(at).Sub(right)
									require.GreaterOrEqual(t, late, time.Duration(0))
									if i > 0 || hasNotice {
										require.Zero(t, late)
									}
									require.LessOrEqual(t, late, lookInterval)
								}
								require.LessOrEqual(t, s.calls.Load()-calls, int64(32))
								require.True(t, job.Stop())
							})
						})
					}
				}
			}
		}
	}
}

// Small steps back neither repeat a run nor lose one, before and after the first run, also if
// several follow one another.
func TestSmallStepsBack(t *testing.T) {
	for _, hasNotice := range []bool{false, true} {
		for _, steps := range [][]time.Duration{{time.Second}, {10 * time.Minute}, {time.Hour}, {smallStep}, {20 * time.Minute, 30 * time.Minute, 20 * time.Minute}} {
			for _, before := range []time.Duration{10 * time.Second, 5*time.Minute + 30*time.Second} {
				t.Run(fmt.Sprint(hasNotice, steps, before), func(t *testing.T) {
					inWall(t, func(t *testing.T, w *TimingWheel, log *timeLog, step *atomic.Int64, notice *notices) {
						notice.refusing = !hasNotice
						var ran []time.Time // by the wall clock
						wall := func() time.Time { return time.Now().Add(time.Duration(step.Load())) }
						begin := wall()
						job := mustJob(t)(w.ScheduleFunc(each(time.Minute), func() { ran = append(ran, wall().Truncate(time.Minute)) }))
						time.Sleep(before)
						synctest.Wait()
						done := len(ran)
						for _, by := range steps {
							step.Add(int64(-by))
							notice.give(nil)
							time.Sleep(3 * time.Second)
						}
						time.Sleep(4 * time.Hour)
						require.NoError(t, job.StopWait(t.Context()))
						from := begin
						if done == 0 { // nothing could be repeated
							from = ran[0].Add(-time.Minute)
							require.LessOrEqual(t, ran[0].Sub(begin), before+time.Minute)
						}
						for i, at := range ran {
							require.Equal(t, from.Add(time.Duration(i+1)*time.Minute), at)
						}
						require.WithinDuration(t, wall(), ran[len(ran)-1], time.Minute)
					})
				})
			}
		}
	}
}

// Many small steps are a large one: the job does not wait for the sum of them.
func TestSmallStepsAddUp(t *testing.T) {
	inWall(t, func(t *testing.T, w *TimingWheel, log *timeLog, step *atomic.Int64, notice *notices) {
		mustJob(t)(w.ScheduleFunc(each(time.Minute), log.note))
		time.Sleep(5*time.Minute + second)
		log.take()
		for range 20 {
			step.Add(int64(-time.Hour))
			notice.give(nil)
			synctest.Wait()
		}
		time.Sleep(10 * time.Minute)
		require.Len(t, log.take(), 10)
	})
}

// A rare time is not lost when the clock is set back, and comes once, unless the clock was wrong
// by about as much as the times are apart.
func TestRareTimesAndAClockSetBack(t *testing.T) {
	for _, c := range []struct {
		period, back time.Duration
		again        bool
	}{
		{year, day, false}, {year, 100 * day, false}, {year, year, true}, {year, 10 * year, true},
		{7 * day, day, false}, {day, 2 * time.Hour, false}, {day, 11 * time.Hour, false}, {day, 20 * time.Hour, true}, {day, day, true},
		{time.Hour, 2 * time.Hour, true},
	} {
		for _, inRun := range []bool{false, true} {
			t.Run(fmt.Sprint(c, inRun), func(t *testing.T) {
				inWall(t, func(t *testing.T, w *TimingWheel, log *timeLog, step *atomic.Int64, notice *notices) {
					wall := func() time.Time { return time.Now().Add(time.Duration(step.Load())) }
					first := wall().Truncate(c.period).Add(c.period)
					step.Store(int64(time.Until(first.Add(-time.Minute))))
					var mu sync.Mutex
					var all []time.Time
					ran := func() []time.Time {
						mu.Lock()
						defer mu.Unlock()
						return slices.Clone(all)
					}
					mustJob(t)(w.ScheduleFunc(each(c.period), func() {
						mu.Lock()
						all = append(all, wall().Truncate(time.Hour))
						mu.Unlock()
						if inRun && len(ran()) == 1 {
							step.Add(-int64(c.back))
							notice.give(nil)
						}
					}))
					set := func(by time.Duration) {
						step.Add(int64(by))
						notice.give(nil)
						synctest.Wait()
					}
					if !c.again { // before it has run: it comes, once
						set(-c.back)
						set(c.back)
						require.Empty(t, ran())
					}
					time.Sleep(2 * time.Minute)
					synctest.Wait()
					if !inRun {
						set(-c.back)
					}
					want := []time.Time{first}
					for at := wall().Truncate(c.period).Add(c.period); len(want) < 15; at = at.Add(c.period) {
						if c.again || at.After(first) {
							want = append(want, at)
						}
					}
					for len(ran()) < len(want) {
						time.Sleep(c.period)
						synctest.Wait()
					}
					require.Equal(t, want, ran()[:len(want)])
				})
			})
		}
	}
}

// Of a one-time schedule, which has no time after its time, a clock that is set back makes
// nothing.
func TestOneTimeAndAClockSetBack(t *testing.T) {
	inWall(t, func(t *testing.T, w *TimingWheel, log *timeLog, step *atomic.Int64, notice *notices) {
		job := mustJob(t)(w.ScheduleFunc(at(log.start.Add(time.Hour)), func() {
			log.note()
			step.Store(-int64(day))
			notice.give(nil)
		}))
		<-job.Done()
		require.NoError(t, job.Err())
		require.Equal(t, []time.Duration{time.Hour}, log.take())
	})
}

// The calls of Next do not grow with the number of missed times, whether the clock was set
// forward or a run has taken long. A fixed interval keeps its phase.
func TestCallsOfNextAreBounded(t *testing.T) {
	daytime := schedulerFunc(func(prev time.Time) time.Time { // each second of the morning
		if next := prev.Truncate(time.Second).Add(time.Second); next.Hour() < 12 {
			return next
		}
		return prev.Truncate(day).Add(day)
	})
	fixed := func(d time.Duration) Scheduler {
		return schedulerFunc(func(prev time.Time) time.Time { return prev.Add(d) })
	}
	for name, s := range map[string]Scheduler{"each": each(time.Second), "fixed": fixed(700 * time.Millisecond), "fixed ns": fixed(999_999_937), "daytime": daytime} {
		for _, missed := range []MissedPolicy{MissedSkip, MissedDelay} {
			for _, forward := range []time.Duration{2 * time.Second, 10 * time.Second, time.Hour, 36 * time.Hour, 10 * year} {
				for _, inRun := range []bool{false, true} {
					t.Run(fmt.Sprint(name, missed, forward, inRun), func(t *testing.T) {
						inWall(t, func(t *testing.T, w *TimingWheel, log *timeLog, step *atomic.Int64, notice *notices) {
							wall := func() time.Time { return time.Now().Add(time.Duration(step.Load())) }
							begin, s := wall(), &counted{Scheduler: s}
							var forwarded atomic.Bool
							job := mustJob(t)(w.ScheduleFunc(s, func() {
								log.note()
								if inRun && !forwarded.Swap(true) {
									step.Store(int64(forward))
									notice.give(nil)
								}
							}, OnMissed(missed)))
							if !inRun {
								time.Sleep(100 * time.Millisecond)
								step.Store(int64(forward))
								notice.give(nil)
							}
							time.Sleep(1500 * time.Millisecond)
							synctest.Wait()
							require.LessOrEqual(t, s.calls.Load(), int64(1+6+job.Runs()))
							next, ok := job.Next()
							require.True(t, ok)
							require.True(t, next.After(wall()))
							if missed == MissedSkip { // what one would find who goes through them one by one
								want := begin
								if name == "fixed" || name == "fixed ns" {
									d := s.Scheduler.Next(begin).Sub(begin)
									want = begin.Add(wall().Sub(begin) / d * d)
								} else {
									want = wall()
								}
								require.Equal(t, s.Scheduler.Next(want), next)
							}
							job.Stop()
						})
					})
				}
			}
		}
	}
}

// What comes due in the very moment in which the runs before it are found to be missed is not
// missed.
func TestDueAtTheEndOfMissedTimes(t *testing.T) {
	for _, n := range []int{2, 3, 6, 7, 8, 1000} {
		for name, s := range map[string]Scheduler{"each": each(second), "fixed": schedulerFunc(func(prev time.Time) time.Time { return prev.Add(second) })} {
			t.Run(fmt.Sprint(n, name), func(t *testing.T) {
				inWall(t, func(t *testing.T, w *TimingWheel, log *timeLog, _ *atomic.Int64, _ *notices) {
					job := mustJob(t)(w.ScheduleFunc(s, func() {
						log.note()
						time.Sleep(time.Duration(n) * second)
					}))
					time.Sleep(time.Duration(2*n)*second + second/2)
					require.NoError(t, job.StopWait(t.Context()))
					require.Equal(t, []time.Duration{second, time.Duration(1+n) * second}, log.take()[:2])
				})
			})
		}
	}
}

// MissedBurst runs each missed time, and calls Next once for each run and not before it. A clock
// that is put right meanwhile ends it.
func TestBurstCallsNextOnceARun(t *testing.T) {
	inWall(t, func(t *testing.T, w *TimingWheel, log *timeLog, step *atomic.Int64, notice *notices) {
		s := &counted{Scheduler: each(second)}
		var job *Job
		known := make(chan bool)
		job = mustJob(t)(w.ScheduleFunc(s, func() {
			<-known
			require.Equal(t, s.calls.Load(), job.Runs())
			if job.Runs() == 1000 {
				step.Store(0)
				notice.give(nil)
			}
		}, OnMissed(MissedBurst)))
		close(known)
		step.Store(int64(10 * year))
		notice.give(nil)
		time.Sleep(10*second + second/2)
		synctest.Wait()
		require.EqualValues(t, 1010, job.Runs())
		require.LessOrEqual(t, s.calls.Load(), int64(1013))
	})
}

// While a plan is made because the clock was set back, Stop wins, a Scheduler that panics ends
// its job, and no lock is held.
func TestStopWhileTheClockIsPutRight(t *testing.T) {
	for name, inNext := range map[string]func(*Job){
		"stop":  func(j *Job) { j.Stop() },
		"panic": func(*Job) { panic("boom") },
		"exit":  func(*Job) { runtime.Goexit() },
		"reads": func(j *Job) { j.Next(); j.Runs(); j.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			inWall(t, func(t *testing.T, w *TimingWheel, log *timeLog, step *atomic.Int64, notice *notices) {
				step.Store(int64(day))
				var job *Job
				job = mustJob(t)(w.ScheduleFunc(schedulerFunc(func(prev time.Time) time.Time {
					if job != nil && job.Runs() == 0 {
						inNext(job)
					}
					return hourly(prev)
				}), log.note))
				step.Store(0)
				notice.give(nil)
				time.Sleep(time.Hour)
				synctest.Wait()
				if name == "reads" {
					require.Equal(t, []time.Duration{time.Hour}, log.take())
					return
				}
				<-job.Done()
				require.Error(t, job.Err())
				require.Empty(t, log.take())
			}, WithPanicHandler(func(any, []byte) {}))
		})
	}
}
