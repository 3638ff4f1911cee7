//go:build unix

package main

import (
	"bufio"
	"cmp"
	"fmt"
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
	began    = 'R' // a handler was called
	early    = 'B' // it was called before the job was due, by the engine's clock: see [clockLog]
	failed   = 'F' // it is about to return an error
	finished = 'D' // it is about to return nil
	listed   = 'L' // the job is dead, and was listed as such at the end
	promised = 'P' // a schedule is stored: its name, its end and its interval
	occurred = 'O' // a handler was called for an occurrence: the name, its time, and the Ref
	silent   = 'S' // Health has not returned a minute after its context
	peace    = 'E' // the process has ended by itself: all that it asked was answered

	limitsHold = 'q' // all limits are stored
	limitsEnd  = 'Q' // they are about to be removed
	paused     = 'p' // a kind and a lane are paused
	resumed    = 'r' // they are about to be resumed
	boutBegan  = 'G' // a handler was called under a limit: the kind, the lane, and the attempt
	boutEnded  = 'H' // it is about to return: the attempt
	renewed    = 'V' // the lease was renewed, by what was asked at that time
	token      = 'T' // a claim was given a token that comes at that time

	signaling     = 'g' // Signal is about to be called: the Ref, and the payload
	signaled      = 'Y' // it has returned true
	signalRefused = 'n' // it has returned false
	signalUnsure  = 'u' // it has returned an error
	attempted     = 'a' // a handler was called for a job that takes signals: the Ref, the attempt, and the signal
	valued        = 'v' // Add has returned the Ref of a value: the key, the value, and the Ref
	valueSeen     = 'w' // a handler was called for a value: the key, and the value
)

func openLedger(dir string) *ledger {
	id := fmt.Sprintf("%d-%d", os.Getpid(), time.Now().UnixNano())
	return &ledger{get(os.OpenFile(filepath.Join(dir, "ledger-"+id), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)), id}
}

// write adds a line; the ledger may be nil. A process that cannot write ends.
func (l *ledger) write(what rune, ref string) {
	if l == nil {
		return
	}
	if _, err := fmt.Fprintf(l.f, "%c %s %d\n", what, ref, setclock.Real().UnixNano()); err != nil {
		fmt.Fprintln(os.Stderr, "ledger:", err)
		os.Exit(3)
	}
}

// account is what the ledgers of all processes say together.
type account struct {
	Accepted, Canceled, Ran int // jobs
	Attempts                int
	Lost                    int // accepted; neither done, nor canceled, nor dead and listed
	CanceledAndRan          int
	Uncertain               int // neither, and Cancel had no answer: an error, or the kill
	Twice                   int // jobs that were begun more often than they failed, and once more
	Stray                   int // begun, and never accepted: the answer was lost
	Early                   int // attempts that began before they were due
	Rejected                int // jobs that were not accepted
	Wrong                   int // answers that cannot be
	Silent                  int // calls that have not returned
	LostRefs                []string

	Series, Occurrences int // schedules, and what has begun of them
	Missing             int // occurrences that should have
	Doubled             int // that were stored twice

	Limits limitsAccount
	Keys   keyAccount
}

// past is what the ledgers say of one job.
type past struct {
	n [128]uint32 // lines of each kind

	firstCanceled, firstFailed, lastBegan time.Time
}

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

func (p *past) add(what rune, at time.Time) {
	p.n[what]++
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
	jobs      map[string]*past   // by Ref
	schedules map[string]*series // by name
	limits    *book
	keys      *keyBook
}

func readLedgers(dir string) *entries {
	e := &entries{map[string]*past{}, map[string]*series{}, newBook(), newKeyBook()}
	for _, name := range ledgersIn(dir) {
		e.read(name)
	}
	return e
}

func ledgersIn(dir string) []string { return get(filepath.Glob(filepath.Join(dir, "ledger-*"))) }

func audit(dir string) (a account) {
	e := readLedgers(dir)
	a.auditSeries(e.schedules)
	a.Limits = e.limits.settle()
	a.Keys = e.keys.settle(e.jobs)
	for ref, p := range e.jobs {
		a.Attempts += int(p.n[began])
		a.Early += int(p.n[early])
		a.Rejected += int(p.n[rejected])
		a.Wrong += int(p.n[wrong])
		a.Silent += int(p.n[silent])
		a.Accepted += int(min(p.n[accepted], 1))
		a.Canceled += int(min(p.n[canceled], 1))
		a.Ran += int(min(p.n[began], 1))
		if p.n[began] > 1+p.n[failed] && !e.keys.has(ref) { // whose handlers take longer, so that more are killed
			a.Twice++
		}
		switch {
		case p.canceledAndRan():
			a.CanceledAndRan++
		case e.keys.debounced[ref]: // it may have been replaced: see keyAccount
		case p.lost() && p.n[unsure] > 0:
			a.Uncertain++
		case p.lost():
			a.Lost++
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
		what, ref, at := rune(part[0][0]), part[1], time.Unix(0, nanos)
		switch {
		case e.limits.add(name, what, ref, at) || e.keys.add(what, ref, at):
		case what == peace:
			return
		case what == promised || what == occurred:
			addSeries(e.schedules, what, ref)
		case what == asked:
			waits[ref] = at
		default:
			if what == canceled || what == refused || what == unsure {
				delete(waits, ref)
			}
			e.add(what, ref, at)
		}
	}
	for ref, at := range waits {
		e.add(unsure, ref, at)
	}
}

func (e *entries) add(what rune, ref string, at time.Time) {
	p := e.jobs[ref]
	if p == nil {
		p = &past{}
		e.jobs[ref] = p
	}
	p.add(what, at)
}

func (a account) String() string {
	s := fmt.Sprintf("accepted %d, rejected %d, canceled %d, ran %d in %d attempts; lost %d, canceled and ran %d, early %d, twice %d (%.2f %%), unacknowledged and ran %d, canceled without an answer %d",
		a.Accepted, a.Rejected, a.Canceled, a.Ran, a.Attempts, a.Lost, a.CanceledAndRan, a.Early, a.Twice, 100*float64(a.Twice)/float64(max(a.Accepted, 1)), a.Stray, a.Uncertain)
	if a.Series > 0 {
		s += fmt.Sprintf("; %d schedules, %d occurrences, missing %d, stored twice %d", a.Series, a.Occurrences, a.Missing, a.Doubled)
	}
	if a.Limits.Bouts > 0 {
		s += a.Limits.String()
	}
	if a.Keys != (keyAccount{}) {
		s += a.Keys.String()
	}
	return s
}
