//go:build unix

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tickwheel/tickwheel/durable/trials/setclock"
)

// ledger is a file to which a process appends what it has been promised and what it does,
// a line each: what, of which job, and when, by the system's clock, which no fault sets.
// The system keeps what was written when the process is killed.
type ledger struct {
	f  *os.File
	id string
}

// What a line begins with.
const (
	accepted = 'A' // Add has returned the Ref
	rejected = 'X' // it has returned an error, but ErrExists
	wrong    = 'W' // it has returned ErrExists for a job without a key
	asked    = 'c' // Cancel is about to be called
	canceled = 'C' // it has returned true
	refused  = 'N' // it has returned false
	unsure   = 'U' // it has returned an error
	began    = 'R' // a handler was called: the Ref, and when the job was due
	failed   = 'F' // it is about to return an error
	finished = 'D' // it is about to return nil
	listed   = 'L' // the job is dead, and was listed as such at the end
	promised = 'P' // a schedule is stored: its name, its end and its interval
	occurred = 'O' // a handler was called for an occurrence: the name, its time, and the Ref
	silent   = 'S' // Health has not returned a minute after its context
	peace    = 'E' // the process has ended by itself: all that it asked was answered

	clockSet = 'K' // the engine's clock is about to be set so far ahead

	limitsHold = 'q' // all limits are stored
	limitsEnd  = 'Q' // they are about to be removed
	paused     = 'p' // a kind and a lane are paused
	resumed    = 'r' // they are about to be resumed
	boutBegan  = 'G' // a handler was called under a limit: the kind, the lane, and the attempt
	boutEnded  = 'H' // it is about to return: the attempt
	renewed    = 'V' // the lease was renewed, by what was asked at that time

	signaling     = 'g' // Signal is about to be called: the Ref, and the payload
	signaled      = 'Y' // it has returned true
	signalRefused = 'n' // it has returned false
	signalUnsure  = 'u' // it has returned an error
	attempted     = 'a' // a handler was called for a job that takes signals: the Ref, the attempt, and the signal
	valued        = 'v' // Add has returned the Ref of a value: the key, the value, and the Ref
	valueSeen     = 'w' // a handler was called for a value: the key, and the value

	pushed     = 'b' // Add has accepted a value: the key, the value, and its MaxWait in nanoseconds
	pushSeen   = 'B' // a handler was called for it: the key, and the value
	heldBegan  = 'h' // a handler was called for a key that a transaction is to hold
	watchBegan = 'j' // from now on it is noted how late plain jobs are
	watchEnded = 'J' // no more
	shared     = 's' // a call about a key that clients of all servers use, and its answer: see sharedCall
	slowAdd    = 'i' // Add has taken longer than it may beside a transaction that holds other keys
)

func openLedger(dir string) *ledger {
	id := fmt.Sprintf("%d-%d", os.Getpid(), time.Now().UnixNano())
	return &ledger{get(os.OpenFile(filepath.Join(dir, "ledger-"+id), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)), id}
}

// write adds a line; the ledger may be nil. A process that cannot write ends.
func (l *ledger) write(what rune, text string) {
	if l == nil {
		return
	}
	if _, err := fmt.Fprintf(l.f, "%c %s %d\n", what, text, setclock.Real().UnixNano()); err != nil {
		fmt.Fprintln(os.Stderr, "ledger:", err)
		os.Exit(3)
	}
}

// ledgersIn returns the ledgers in a directory whose names begin with a text.
func ledgersIn(dir, of string) []string {
	return get(filepath.Glob(filepath.Join(dir, "ledger-"+of+"*")))
}

// sizesOf returns how large the ledgers in a directory are.
func sizesOf(dir string) map[string]int64 {
	sizes := map[string]int64{}
	for _, name := range ledgersIn(dir, "") {
		if fi, err := os.Stat(name); err == nil {
			sizes[name] = fi.Size()
		}
	}
	return sizes
}

// linesIn returns how many lines of a kind are in ledgers, after so many bytes of each.
func linesIn(dir, of string, what rune, after map[string]int64) (n int) {
	for _, name := range ledgersIn(dir, of) {
		f := get(os.Open(name))
		text, _ := io.ReadAll(io.NewSectionReader(f, after[name], 1<<40))
		n += bytes.Count(append([]byte("\n"), text...), []byte{'\n', byte(what), ' '})
		f.Close()
	}
	return n
}

// account is what the ledgers of all processes say together.
type account struct {
	Accepted, Rejected, Canceled, Ran int // jobs
	Attempts                          int
	Uncertain                         int // jobs without an end whose Cancel had no answer: an error, or the kill
	Twice                             int // jobs that were begun more often than they failed, and once more
	Stray                             int // begun, and never accepted: the answer was lost

	Schedules, Occurrences int // and what has begun of them

	Bouts         int  // attempts under limits
	Permits, Lane int  // at once, at most
	LimitsRemoved bool // and not before all else had ended
	Pauses        int
	Cooldowns     int

	Signaled, SignalRefused, SignalUnknown int // answers; unknown: none came
	Values, Keys                           int // that were added

	Pushed, PushRuns int           // values of keys that are pushed back, and their attempts
	Gap              time.Duration // between two of these, at most
	Late             time.Duration // by which plain jobs were late meanwhile, at most
	LateByFar        int           // those that were late by more than others
	SlowAdds         int           // beside a transaction that holds other keys

	Kept int // in the history at the end

	Shared sharedAnswers

	Broken   promises
	LostRefs []string
}

// promises are how often each was broken.
type promises struct {
	Lost           int // accepted; neither done, nor canceled, nor dead and listed
	CanceledAndRan int
	Early          int // attempts that began before they were due
	Wrong          int // answers that cannot be
	Silent         int // calls that have not returned
	Died           int // processes that have ended by themselves, or did not end when they were told to

	Missing int // occurrences that should have begun
	Doubled int // that were stored twice

	TooMany      int // at once, beyond the limits
	Excess       int // beginnings of the rate beyond what it lets through, at most
	PausedAndRan int
	CooledAndRan int

	Unheard   int // signals that were answered true, and the next attempt has none
	Overheard int // false was answered, and an attempt has the signal
	Unseen    int // keys without a run that has the last value, or a later one whose answer was lost

	History int // jobs that ended and are not in the history exactly once, as what they ended as, or are there and may not be

	Starved int // keys that did not run within their MaxWait, while values were added
	Deposed int // answers about a key that were right at no moment of the call
	Older   int // keys of which an older value began after the last one, or of which the last one never began
}

// result is what a fault has shown.
type result struct {
	account
	Happened int // times that something was killed or frozen, or that the fault was seen
	expected
}

// expected is what a fault has to show, so that it proves something.
type expected struct {
	twice     float64 // of the accepted, at most; less than 0: any
	rejected  float64 // of the accepted, at most; 0: any
	schedules int
	limits    bool // were tried
	control   bool // jobs have to be lost, or else the fault proves nothing
	shared    bool // clients of several servers use the same keys
	kept      bool // jobs have a Retain
	held      bool // nothing waits for a transaction that holds other keys
	brief     bool // it is too short to try all
}

// String leaves out the names of what was lost, some of which check has.
func (r result) String() string {
	r.LostRefs = nil
	return fmt.Sprintf("%d times: %+v", r.Happened, r.account)
}

// check returns an error if a promise was broken, or the fault proves nothing. It asks no more of limits than
// that some run beside others: how many do depends on how busy the machine is.
func (r result) check() error {
	of := float64(r.Accepted)
	switch want := r.expected; {
	case want.control && r.Broken.Lost == 0:
		return errors.New("the control has lost nothing")
	case want.control:
		return nil
	case r.Broken != (promises{}):
		return fmt.Errorf("broken: %+v, among them %v", r.Broken, r.LostRefs[:min(3, len(r.LostRefs))])
	case r.Accepted == 0 || r.Happened == 0:
		return errors.New("nothing was accepted, or nothing happened")
	case r.Schedules != want.schedules || r.Occurrences < want.schedules:
		return fmt.Errorf("of %d schedules %d, with %d occurrences", want.schedules, r.Schedules, r.Occurrences)
	case want.limits && (!r.LimitsRemoved || r.Pauses == 0 || r.Bouts == 0 || !want.brief && (r.Permits < 2 || r.Cooldowns == 0)):
		return errors.New("the limits were not tried")
	case want.kept && r.Kept == 0:
		return errors.New("no history was kept")
	case want.held && r.LateByFar+r.SlowAdds > 0:
		return fmt.Errorf("beside a transaction %d jobs and %d Adds of other keys were late by more than %v", r.LateByFar, r.SlowAdds, others)
	case want.shared && min(r.Shared.Stored, r.Shared.Kept, r.Shared.Exists, r.Shared.Refused, r.Shared.NotFound) == 0:
		return errors.New("keys that several use were not tried")
	case !want.brief && (r.Signaled == 0 || r.SignalRefused == 0 || r.Keys == 0):
		return errors.New("signals and keys were not tried")
	case !want.brief && want.rejected > 0 && float64(r.Rejected) > want.rejected*of:
		return fmt.Errorf("%d were not accepted, more than %.1f %%", r.Rejected, 100*want.rejected)
	case !want.brief && want.twice >= 0 && float64(r.Twice) > want.twice*of:
		return fmt.Errorf("%d ran twice, more than %.1f %%", r.Twice, 100*want.twice)
	}
	return nil
}

// past is what the ledgers say of one job.
type past struct {
	n [128]int // lines of each kind

	begun                                 []beginning
	firstCanceled, firstFailed, lastBegan time.Time
}

// beginning is of an attempt of a job that was due at a time.
type beginning struct{ at, due time.Time }

// slack is how long the line of a handler may take to be written after the queue has
// begun the attempt: a busy machine lets it wait. It is shorter than what has to happen
// until a job that another worker has begun can be canceled: the end of a lease, and an
// attempt that fails.
const slack = time.Second

// canceledAndRan reports whether the promise of Cancel was broken: it has returned true,
// and an attempt began later; or there was an attempt before, and none had failed.
func (p *past) canceledAndRan() bool {
	if p.n[canceled] == 0 || p.n[began] == 0 {
		return false
	}
	end := p.firstCanceled
	return p.n[failed] == 0 || p.firstFailed.After(end) || p.lastBegan.After(end.Add(slack))
}

func (p *past) add(what rune, more []string, at time.Time) {
	p.n[what]++
	if len(more) > 0 {
		p.begun = append(p.begun, beginning{at, time.Unix(0, number(more[0]))})
	}
	switch {
	case what == canceled && (p.n[canceled] == 1 || at.Before(p.firstCanceled)):
		p.firstCanceled = at
	case what == failed && (p.n[failed] == 1 || at.Before(p.firstFailed)):
		p.firstFailed = at
	case what == began && at.After(p.lastBegan):
		p.lastBegan = at
	}
}

// lost reports whether a job that was accepted has no end.
func (p *past) lost() bool {
	return p.n[accepted] > 0 && cmp.Or(p.n[finished], p.n[canceled], p.n[listed]) == 0
}

// entries are what all ledgers say.
type entries struct {
	jobs      entriesOf[past]     // by Ref
	schedules entriesOf[schedule] // by name
	signals   entriesOf[signals]  // by Ref
	values    entriesOf[values]   // by key
	debounced entriesOf[bool]     // by Ref: accepted under such a key
	kept      entriesOf[kept]     // by Ref
	clock     clockSettings
	limits    book
	pushes    entriesOf[pushes] // by key
	shared    entriesOf[sharedCalls]
	watches   []time.Time // their begins and ends, by turns
}

// entriesOf are by name.
type entriesOf[T any] map[string]*T

// of returns the entry of a name, which it makes if there is none.
func (e *entriesOf[T]) of(name string) *T {
	if *e == nil {
		*e = entriesOf[T]{}
	}
	if (*e)[name] == nil {
		(*e)[name] = new(T)
	}
	return (*e)[name]
}

// audit counts what the ledgers say.
func audit(dir string) (a account) {
	var e entries
	for _, name := range ledgersIn(dir, "") {
		e.read(name)
	}
	e.limits.settle(&a)
	e.settleKeys(&a)
	e.settlePushes(&a)
	e.settleShared(&a)
	for name, s := range e.schedules {
		s.settle(&a, name)
	}
	for ref, k := range e.kept {
		k.settle(&a, e.jobs.of(ref))
	}
	for ref, p := range e.jobs {
		a.Attempts += p.n[began]
		a.Rejected += p.n[rejected]
		a.Broken.Wrong += p.n[wrong]
		a.Broken.Silent += p.n[silent]
		a.SlowAdds += p.n[slowAdd]
		a.Accepted += min(p.n[accepted], 1)
		a.Canceled += min(p.n[canceled], 1)
		a.Ran += min(p.n[began], 1)
		for _, b := range p.begun {
			if e.clock.isEarly(b.at, b.due) {
				a.Broken.Early++
			}
		}
		keyed := e.debounced[ref] != nil || e.signals[ref] != nil // their handlers take longer, so that more are killed
		if p.n[began] > 1+p.n[failed] && !keyed {
			a.Twice++
		}
		switch {
		case p.canceledAndRan():
			a.Broken.CanceledAndRan++
		case e.debounced[ref] != nil: // it may have been replaced: see Unseen
		case p.lost() && p.n[unsure] > 0:
			a.Uncertain++
		case p.lost():
			a.Broken.Lost++
			a.LostRefs = append(a.LostRefs, ref)
		case p.n[accepted] == 0 && p.n[began] > 0:
			a.Stray++
		}
	}
	return a
}

// read adds the lines of a file. A call of Cancel without an answer is unsure only
// if the process was killed: one that ended in peace has written down what it was told.
func (e *entries) read(name string) {
	f := get(os.Open(name))
	defer f.Close()
	waits := map[string]time.Time{} // for the answer of Cancel
	for s := bufio.NewScanner(f); s.Scan(); {
		part := strings.Split(s.Text(), " ")
		if len(part) != 3 || len(part[0]) != 1 || part[0][0] >= 128 {
			continue // the last line of a process that was killed
		}
		nanos, err := strconv.ParseInt(part[2], 10, 64)
		if err != nil {
			continue
		}
		what, text, at := rune(part[0][0]), part[1], time.Unix(0, nanos)
		switch what {
		case peace:
			return
		case asked:
			waits[text] = at
			continue
		case canceled, refused, unsure:
			delete(waits, text)
		}
		e.add(name, what, text, at)
	}
	for ref, at := range waits {
		e.add(name, unsure, ref, at)
	}
}
