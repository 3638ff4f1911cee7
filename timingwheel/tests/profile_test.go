package timingwheel_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/purgatory"
	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

// origin is a sample of a profile that was read. Its frames are "function file:line".
type origin struct {
	frames                     []string
	pending, remaining, waited int64
}

// profileOf returns the profile of a wheel.
func profileOf(t testing.TB, w *timingwheel.TimingWheel) []origin {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, w.WriteProfile(&out))
	z, err := gzip.NewReader(&out)
	require.NoError(t, err)
	raw, err := io.ReadAll(z)
	require.NoError(t, err)
	require.EqualValues(t, w.Stats().ProfileRate, one(raw, 12).value, "the period")
	var texts []string
	locations, functions := map[uint64][]byte{}, map[uint64][]byte{}
	var samples [][]byte
	for number, f := range fieldsOf(raw) {
		switch number {
		case 2:
			samples = append(samples, f.bytes)
		case 4:
			locations[one(f.bytes, 1).value] = one(f.bytes, 4).bytes
		case 5:
			functions[one(f.bytes, 1).value] = f.bytes
		case 6:
			texts = append(texts, string(f.bytes))
		}
	}
	var all []origin
	for _, s := range samples {
		v := varints(one(s, 2).bytes)
		o := origin{pending: int64(v[0]), remaining: int64(v[1]), waited: int64(v[2])}
		for _, l := range varints(one(s, 1).bytes) {
			line := locations[l]
			f := functions[one(line, 1).value]
			o.frames = append(o.frames, fmt.Sprintf("%s %s:%d", texts[one(f, 2).value], filepath.Base(texts[one(f, 4).value]), one(line, 2).value))
		}
		all = append(all, o)
	}
	return all
}

// field is a field of a message of Protocol Buffers: a number, or bytes.
type field struct {
	value uint64
	bytes []byte
}

func fieldsOf(m []byte) func(yield func(int, field) bool) {
	return func(yield func(int, field) bool) {
		for len(m) > 0 {
			key, n := binary.Uvarint(m)
			v, k := binary.Uvarint(m[n:])
			m = m[n+k:]
			f := field{value: v}
			if key&7 == 2 {
				f.bytes, m = m[:v], m[v:]
			}
			if !yield(int(key>>3), f) {
				return
			}
		}
	}
}

func one(m []byte, number int) (found field) {
	for n, f := range fieldsOf(m) {
		if n == number {
			found = f
		}
	}
	return found
}

func varints(b []byte) (all []uint64) {
	for len(b) > 0 {
		v, n := binary.Uvarint(b)
		all, b = append(all, v), b[n:]
	}
	return all
}

// total adds up how many are pending.
func total(all []origin) (n int64) {
	for _, o := range all {
		n += o.pending
	}
	return n
}

// ways are the calls that add something. Each is one line.
func ways(ctx context.Context, w *timingwheel.TimingWheel, p *pool.Pool) map[string]func() {
	keyed, group, watches := timingwheel.NewKeyed[int](w), timingwheel.NewGroup(w), purgatory.New[string](w)
	no := func() {}
	return map[string]func(){
		"AfterFunc":              func() { w.AfterFunc(time.Hour, no) },
		"Timer.Reset":            func() { stopped(w).Reset(time.Hour) },
		"Schedule":               func() { w.Schedule(time.Hour, no) },
		"ScheduleAt":             func() { w.ScheduleAt(w.Now().Add(time.Hour), no) },
		"ScheduleBatch":          func() { w.ScheduleBatch(nil, []timingwheel.Delayed{{After: time.Hour, Func: no}}) },
		"NewTimer":               func() { w.NewTimer(time.Hour) },
		"After":                  func() { w.After(time.Hour) },
		"SleepContext":           func() { go func() { w.SleepContext(ctx, time.Hour) }() },
		"NewTicker":              func() { w.NewTicker(time.Hour) },
		"Tick":                   func() { w.Tick(time.Hour) },
		"WithTimeout":            func() { w.WithTimeout(ctx, time.Hour) },
		"WithDeadlineCause":      func() { w.WithDeadlineCause(ctx, w.Now().Add(time.Hour), nil) },
		"ScheduleFunc":           func() { w.ScheduleFunc(everySecond{}, no) },
		"ScheduleAtFixedRate":    func() { w.ScheduleAtFixedRate(time.Hour, time.Hour, no) },
		"ScheduleWithFixedDelay": func() { w.ScheduleWithFixedDelay(time.Hour, time.Hour, no) },
		"Submit":                 func() { timingwheel.Submit(w, time.Hour, func(context.Context) (int, error) { return 0, nil }) },
		"Keyed":                  func() { keyed.Schedule(1, time.Hour, no) },
		"Group.AfterFunc":        func() { group.AfterFunc(time.Hour, no) },
		"Group.Schedule":         func() { group.Schedule(time.Hour, no) },
		"pool.Schedule":          func() { p.Schedule(w, time.Hour, func(*pool.Worker) {}) },
		"purgatory":              func() { watches.Park(time.Hour, func() bool { return false }, func(purgatory.Outcome) {}, "key") },
	}
}

// Each stack begins with the line that called the library, whatever was called.
func TestProfileKnowsWhoAdded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool.New(1, 0, pool.Wait)
		w := timingwheel.New(timingwheel.WithProfileRate(1), timingwheel.WithExecutor(p))
		defer p.Close()
		defer w.Stop()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		for name, add := range ways(ctx, w, p) {
			before := total(profileOf(t, w))
			add()
			synctest.Wait()
			all := profileOf(t, w)
			require.EqualValues(t, w.Len(), total(all), name)
			require.Equal(t, before+1, total(all), name)
			at := runtime.FuncForPC(reflect.ValueOf(add).Pointer())
			_, line := at.FileLine(at.Entry())
			found := false
			for _, o := range all {
				found = found || strings.HasSuffix(o.frames[0], fmt.Sprintf(" profile_test.go:%d", line))
			}
			require.True(t, found, "%s: no stack begins at line %d: %v", name, line, all)
		}
	})
}

// A recurring timer belongs to its creator in the profile, and is pending once or not at all.
func TestProfileOfWhatRecurs(t *testing.T) {
	w := virtual(timingwheel.WithProfileRate(1))
	defer w.Stop()
	pendingInRun := int64(-1)
	makeTicker := func() *timingwheel.Ticker { return w.NewTicker(time.Second) }
	ticker := makeTicker()
	job := mustJob(t)(w.ScheduleAtFixedRate(0, time.Second, func() { pendingInRun = total(profileOf(t, w)) }))
	mustJob(t)(w.ScheduleFunc(everySecond{}, noop))
	for range 100 {
		w.Advance(time.Second)
		verify(t, w)
		all := profileOf(t, w)
		require.Len(t, all, 3)
		require.EqualValues(t, 3, total(all))
		for _, o := range all {
			require.Contains(t, o.frames[0], "/tests_test.TestProfileOfWhatRecurs")
			require.Zero(t, o.waited, "since the last tick")
		}
	}
	require.EqualValues(t, 2, pendingInRun, "a job is not pending while it runs")
	ticker.Reset(time.Minute)
	require.EqualValues(t, 3, total(profileOf(t, w)))
	ticker.Stop()
	job.Stop()
	require.EqualValues(t, 1, total(profileOf(t, w)))
}

// The times are of all together, and follow a reset.
func TestProfileTimes(t *testing.T) {
	w := virtual(timingwheel.WithProfileRate(1))
	defer w.Stop()
	var timers []*timingwheel.Timer
	for range 10 {
		timers = append(timers, w.AfterFunc(time.Hour, noop))
	}
	w.Advance(time.Minute)
	of := func() origin { all := profileOf(t, w); require.Len(t, all, 1); return all[0] }
	require.EqualValues(t, 10*59*60_000, of().remaining)
	require.EqualValues(t, 10*60_000, of().waited)
	for hours := range 4 { // the later ones without the lock
		timers[0].Reset(time.Duration(hours+1) * time.Hour)
	}
	require.EqualValues(t, (9*59+240)*60_000, of().remaining)
	require.EqualValues(t, 10*60_000, of().waited)
	for range 1000 {
		w.Schedule(math.MaxInt64, noop)
	}
	require.Positive(t, total(profileOf(t, w)))
	for _, o := range profileOf(t, w) {
		require.GreaterOrEqual(t, o.remaining, int64(59*60_000))
	}
	w.Stop()
	require.Empty(t, profileOf(t, w))
	_, room := (*engine.Engine)(w).Samples()
	require.Zero(t, room)
}

// A sample is an estimate whose error is that of independent draws, also if every second
// add is another's.
func TestProfileEstimates(t *testing.T) {
	const rate, n = 64, 200_000
	w := virtual(timingwheel.WithProfileRate(rate))
	defer w.Stop()
	for range n {
		w.Schedule(time.Hour, noop)
		timeout, _ := w.Schedule(time.Hour, noop)
		timeout.Cancel()
	}
	all := profileOf(t, w)
	require.Len(t, all, 1)
	require.InDelta(t, n, all[0].pending, 7*rate*math.Sqrt(n/float64(rate)), "seven standard deviations")
	require.Zero(t, all[0].pending%rate)
	require.Equal(t, all[0].pending*time.Hour.Milliseconds(), all[0].remaining)
}

// The samples follow what is pending, up and down.
func TestProfileForgetsWhatHasEnded(t *testing.T) {
	const n = 20_000
	w := virtual(timingwheel.WithProfileRate(1))
	defer w.Stop()
	churn := func(n int) {
		for range n {
			w.AfterFunc(time.Hour, noop).Stop()
		}
	}
	samples := (*engine.Engine)(w).Samples
	churn(n)
	have, room := samples()
	require.LessOrEqual(t, have, 4, "nothing is pending")
	require.LessOrEqual(t, room, 256)
	var timeouts []timingwheel.Timeout
	for range n {
		timeout, _ := w.Schedule(time.Hour, noop)
		timeouts = append(timeouts, timeout)
	}
	churn(10 * n)
	have, _ = samples()
	require.LessOrEqual(t, have, 2*n, "the dead are at most as many as the living")
	for _, timeout := range timeouts {
		timeout.Cancel()
	}
	churn(2 * n)
	have, room = samples()
	require.LessOrEqual(t, have, 4)
	require.LessOrEqual(t, room, 256)
	verify(t, w)
}

// While as many are pending, at most half of the samples are of entries that have ended.
func TestProfileKeepsFewOfWhatHasEnded(t *testing.T) {
	const n = 2000
	r := rand.New(rand.NewPCG(1, 2))
	for name, victim := range map[string]func(add int) int{
		"first in, first out": func(add int) int { return add % n },
		"at random":           func(int) int { return r.IntN(n) },
		"the newest":          func(int) int { return 0 },
		"mixed": func(add int) int {
			if add%3 == 0 {
				return r.IntN(n)
			}
			return r.IntN(n / 10)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := virtual(timingwheel.WithProfileRate(1))
			defer w.Stop()
			var pending [n]timingwheel.Timeout
			for i := range pending {
				pending[i], _ = w.Schedule(time.Hour, noop)
			}
			for add := range 20 * n {
				at := victim(add)
				pending[at].Cancel()
				pending[at], _ = w.Schedule(time.Hour, noop)
				if add > n && add%100 == 0 {
					have, room := (*engine.Engine)(w).Samples()
					require.LessOrEqual(t, have, 2*n+2, add)
					require.LessOrEqual(t, room, have+3*64)
				}
			}
			verify(t, w)
			require.EqualValues(t, n, total(profileOf(t, w)))
		})
	}
}

// A stack is forgotten when nothing that it has added is pending.
func TestProfileForgetsStacks(t *testing.T) {
	w := virtual(timingwheel.WithProfileRate(1))
	defer w.Stop()
	heap := func() uint64 {
		var m runtime.MemStats
		for range 3 {
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const paths = 1 << 13
	before := heap()
	var timeouts []timingwheel.Timeout
	ticker := w.NewTicker(time.Hour)
	for path := range paths {
		byPath(path, 13, func() {
			timeout, _ := w.Schedule(time.Hour, noop)
			timeouts = append(timeouts, timeout)
		})
	}
	require.Len(t, profileOf(t, w), paths+1)
	grown := heap() - before
	require.Greater(t, grown, uint64(paths*300), "each path has a stack")
	for _, timeout := range timeouts {
		timeout.Cancel()
	}
	for range paths { // later samples replace those
		w.AfterFunc(time.Hour, noop).Stop()
	}
	waitForGarbage(t, func() bool { return heap() < before+grown/4 })
	all := profileOf(t, w)
	require.Len(t, all, 1)
	require.Contains(t, all[0].frames[0], "TestProfileForgetsStacks")
	ticker.Stop()
	require.Empty(t, profileOf(t, w))
	for range 100 {
		w.AfterFunc(time.Hour, noop).Stop()
	}
	ticker.Reset(time.Hour) // still under the stack of its creator
	require.Equal(t, all[0].frames, profileOf(t, w)[0].frames)
}

// byPath calls f by one of 2^depth ways.
func byPath(path, depth int, f func()) {
	switch {
	case depth == 0:
		f()
	case path&1 == 0:
		byPath(path/2, depth-1, f)
	default:
		byPath(path/2, depth-1, f)
	}
}

// Tickers of a short period are in a profile that takes many of their periods.
func TestProfileSeesShortPeriods(t *testing.T) {
	w := timingwheel.New(timingwheel.WithProfileRate(1), timingwheel.WithShards(1))
	defer w.Stop()
	const long, tickers = 150_000, 50
	for range long {
		w.Schedule(time.Hour, noop)
	}
	for range tickers {
		w.NewTicker(time.Millisecond)
	}
	seen := int64(0)
	for range 10 {
		for _, o := range profileOf(t, w) {
			if o.pending != long {
				require.LessOrEqual(t, o.pending, int64(tickers), "none is counted twice")
				seen += o.pending
			}
		}
	}
	require.Greater(t, seen, int64(10*tickers/2))
}

// Profiles at the same time do not disturb each other, nor do those who add meanwhile: what is
// pending all the time is in each of them, once.
func TestProfilesAtTheSameTime(t *testing.T) {
	w := timingwheel.New(timingwheel.WithProfileRate(1), timingwheel.WithShards(1))
	defer w.Stop()
	const lasting = 3000
	churn := func() { w.AfterFunc(time.Hour, noop).Stop() }
	for range lasting {
		w.Schedule(time.Hour, noop)
		churn()
	}
	var churners, readers sync.WaitGroup
	over := make(chan struct{})
	churners.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				churn()
			}
		}
	})
	for range 3 {
		readers.Go(func() {
			for range 20 {
				found := false
				for _, o := range profileOf(t, w) {
					found = found || o.pending == lasting
				}
				require.True(t, found)
			}
		})
	}
	readers.Wait()
	close(over)
	churners.Wait()
	profileOf(t, w)
	have, _ := (*engine.Engine)(w).Samples()
	require.Equal(t, lasting, have, "a profile drops the others")
}

// What is overdue is due in no time, and not before.
func TestProfileOfWhatIsOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithProfileRate(1), timingwheel.WithManualDrive())
		defer w.Stop()
		w.Schedule(time.Second, noop)
		time.Sleep(time.Minute)
		all := profileOf(t, w)
		require.Len(t, all, 1)
		require.Zero(t, all[0].remaining)
		require.EqualValues(t, 60_000, all[0].waited)
	})
}

// The profile keeps no function alive.
func TestProfileKeepsNothing(t *testing.T) {
	w := timingwheel.New(timingwheel.WithShards(1), timingwheel.WithProfileRate(1))
	defer w.Stop()
	object := new(big)
	of := weak.Make(object)
	w.AfterFunc(time.Hour, func() { object[0] = nil }).Stop()
	_, cancel := w.WithTimeout(context.WithValue(context.Background(), &of, object), time.Hour)
	cancel()
	object = nil
	waitForGarbage(t, func() bool { return of.Value() == nil })
}

// Profiles are written while everything goes on, and a wheel is stopped meanwhile.
func TestProfileBesideEverything(t *testing.T) {
	for _, rate := range []int{1, 7} {
		w := timingwheel.New(timingwheel.WithProfileRate(rate), timingwheel.WithShards(2))
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 2000 {
					timer := w.AfterFunc(rand.N(2*time.Millisecond), noop)
					ticker := w.NewTicker(time.Millisecond)
					timer.Reset(rand.N(2 * time.Millisecond))
					timer.Stop()
					ticker.Stop()
				}
			})
		}
		for range 2 {
			wg.Go(func() {
				for range 50 {
					require.Less(t, total(profileOf(t, w)), int64(2000*rate))
				}
			})
		}
		time.AfterFunc(20*time.Millisecond, func() { w.Stop() })
		wg.Wait()
		w.Stop()
		require.Empty(t, profileOf(t, w))
	}
}

// Without the option there is nothing to write, and an error of the writer is returned.
func TestProfileErrors(t *testing.T) {
	w := virtual()
	require.ErrorContains(t, w.WriteProfile(io.Discard), "WithProfileRate")
	require.Zero(t, w.Stats().ProfileRate)
	require.Zero(t, virtual(timingwheel.WithProfileRate(0)).Stats().ProfileRate)
	w = virtual(timingwheel.WithProfileRate(3))
	require.Equal(t, 3, w.Stats().ProfileRate)
	refused := errors.New("refused")
	require.ErrorIs(t, w.WriteProfile(refusing{refused}), refused)
	require.Panics(t, func() { timingwheel.WithProfileRate(-1); timingwheel.New(timingwheel.WithProfileRate(-1)) })
}

type refusing struct{ err error }

func (r refusing) Write([]byte) (int, error) { return 0, r.err }

// The tool reads it.
func TestProfileIsPprofs(t *testing.T) {
	w := virtual(timingwheel.WithProfileRate(1))
	defer w.Stop()
	for range 100 {
		w.Schedule(time.Hour, noop)
	}
	w.Advance(time.Minute)
	path := filepath.Join(t.TempDir(), "timers.pb.gz")
	out, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, w.WriteProfile(out))
	require.NoError(t, out.Close())
	for _, c := range []struct{ flags, want string }{
		{"-top", "100   100%   100%        100   100%"},
		{"-top -mean -sample_index=waited", "60s   100%"},
		{"-top -mean -sample_index=remaining", "3540s   100%"},
		{"-list TestProfileIsPprofs", "w.Schedule(time.Hour, noop)"},
		{"-traces", "tests_test.TestProfileIsPprofs"},
	} {
		args := append([]string{"tool", "pprof"}, strings.Fields(c.flags)...)
		report, err := exec.Command("go", append(args, path)...).CombinedOutput()
		require.NoError(t, err, "%s", report)
		require.Contains(t, string(report), c.want, c.flags)
	}
}

// stopped returns a Timer that is not pending.
func stopped(w *timingwheel.TimingWheel) *timingwheel.Timer {
	t := w.AfterFunc(time.Hour, noop)
	t.Stop()
	return t
}
