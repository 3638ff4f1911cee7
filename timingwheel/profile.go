package timingwheel

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
	"github.com/tickwheel/tickwheel/timingwheel/internal/pprof"
)

// WithProfileRate samples one in n adds, chosen at random, for [TimingWheel.WriteProfile]: a
// sample has the stack of the caller. 512 suits most programs, and 1 samples each add. The default
// is 0: there is no profile. New panics on a negative number.
//
// A sampled add takes about 1 us more, which at 512 is at most 5 % of the price of an
// add. A cancel, a reset and a firing cost the same as without a profile. A sample takes
// 32 bytes. Samples of entries that have ended are dropped when later samples are taken,
// and by WriteProfile. While the number of pending entries is steady, at most about half of
// the samples are of entries that have ended. Each distinct stack takes 400 bytes, as long
// as it has a sample. The profile keeps no
// function and no value of the program alive.
func WithProfileRate(n int) Option {
	return func(c *config) {
		if n < 0 {
			panic(fmt.Sprintf("timingwheel: WithProfileRate(%d): negative", n))
		}
		c.Profile = nil
		if n > 0 {
			c.Profile = engine.NewProfile(n)
		}
	}
}

// WriteProfile writes a profile of the pending entries, by the stacks that added them,
// for go tool pprof. It covers all that Len counts: functions, channel timers, tickers,
// contexts, jobs and parked operations of a purgatory. It returns the error of out, and
// an error if the wheel has no [WithProfileRate].
//
// The profile has three values for each stack:
//
//	pending    how many are pending (the default)
//	remaining  the time until they are due, together
//	waited     the time since they were added, together
//
// They are estimates: the values of the samples, times n. With k samples, the count is
// off by about 1/sqrt(k). The option -mean of pprof divides the times by the count:
//
//	go tool pprof -top pending.pb.gz
//	go tool pprof -top -mean -sample_index=waited pending.pb.gz
//
// A stack begins with the function that called this library, and has at most 44 frames or so.
// A Reset does not change the stack, nor does a replaced function of a [Keyed] that was pending.
// A Reset that arms a Timer that was not pending counts as an add. All ticks of a [Ticker], and
// all runs of a [Job], belong to the call that made it: either all of them are sampled or
// none. A job is not pending while it runs.
//
// WriteProfile delays no other call for long: after each 256 samples it releases the
// lock, and once after 4096. Entries that are added, fire or are canceled meanwhile may be
// in the profile or not; a ticker or a job that goes on is in it once, however often it
// fires. It may be called at any time, by several goroutines, which take turns, also on a
// stopped wheel, where nothing is pending. O(samples). This serves it beside the profiles of package
// net/http/pprof:
//
//	http.HandleFunc("/debug/pprof/timers", func(rw http.ResponseWriter, r *http.Request) {
//		w.WriteProfile(rw)
//	})
func (w *TimingWheel) WriteProfile(out io.Writer) error {
	e := w.engine()
	rate := int64(e.ProfileRate())
	if rate == 0 {
		return errors.New("timingwheel: WriteProfile: the wheel was made without WithProfileRate")
	}
	p := pprof.Profile{
		Types:  []pprof.ValueType{{Type: "pending", Unit: "count"}, {Type: "remaining", Unit: "milliseconds"}, {Type: "waited", Unit: "milliseconds"}},
		Period: rate,
		Time:   time.Now(),
	}
	for _, o := range e.Profile() {
		p.Samples = append(p.Samples, pprof.Sample{Stack: o.Stack, Values: scaled(rate, o)})
	}
	return p.Write(out)
}

// scaled returns the values of what was sampled. In nanoseconds, three million timers of an hour
// would be more than fits.
func scaled(rate int64, o engine.Origin) []int64 {
	milliseconds := func(seconds float64) int64 { return int64(min(seconds*1000*float64(rate), math.MaxInt64/2)) }
	return []int64{o.Pending * rate, milliseconds(o.Remaining), milliseconds(o.Waited)}
}
