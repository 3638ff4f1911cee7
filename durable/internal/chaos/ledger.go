package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// ledger is a file to which a process appends what it has been promised and what it does,
// a line each. The system keeps what was written when the process is killed.
type ledger struct{ f *os.File }

// What a line begins with.
const (
	accepted = 'A' // Add has returned the Ref
	asked    = 'c' // Cancel is about to be called
	canceled = 'C' // it has returned true
	refused  = 'N' // it has returned false
	unsure   = 'U' // it has returned an error
	began    = 'R' // a handler was called
	finished = 'D' // and is about to return nil
	early    = 'B' // it was called before the job was due, by the server's clock
	peace    = 'E' // the process has ended by itself: all that it asked was answered
)

func openLedger(dir string) (*ledger, error) {
	name := filepath.Join(dir, fmt.Sprintf("ledger-%d-%d", os.Getpid(), time.Now().UnixNano()))
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return &ledger{f}, err
}

func (l *ledger) write(what rune, ref string) {
	if _, err := fmt.Fprintf(l.f, "%c %s\n", what, ref); err != nil {
		fmt.Fprintln(os.Stderr, "ledger:", err)
		os.Exit(3)
	}
}

// account is what the ledgers of all processes say together.
type account struct {
	Accepted, Canceled, Ran int // jobs
	Attempts                int
	Lost                    int // accepted, neither run nor canceled
	CanceledAndRan          int
	Uncertain               int // neither, and Cancel had no answer: an error, or the kill
	Twice                   int // jobs that were begun more than once
	Stray                   int // begun, and never accepted: the answer was lost
	Early                   int // attempts that began before they were due
	LostRefs                []string
}

func audit(dir string) (account, error) {
	files, err := filepath.Glob(filepath.Join(dir, "ledger-*"))
	if err != nil {
		return account{}, err
	}
	jobs := map[string]map[rune]int{}
	for _, name := range files {
		if err := readLedger(name, jobs); err != nil {
			return account{}, err
		}
	}
	var a account
	for ref, n := range jobs {
		a.Attempts += n[began]
		a.Early += n[early]
		if n[accepted] > 0 {
			a.Accepted++
		}
		if n[canceled] > 0 {
			a.Canceled++
		}
		if n[began] > 0 {
			a.Ran++
		}
		if n[began] > 1 {
			a.Twice++
		}
		switch {
		case n[canceled] > 0 && n[began] > 0:
			a.CanceledAndRan++
		case n[accepted] > 0 && n[canceled] == 0 && n[began] == 0 && n[unsure] > 0:
			a.Uncertain++
		case n[accepted] > 0 && n[canceled] == 0 && n[began] == 0:
			a.Lost++
			a.LostRefs = append(a.LostRefs, ref)
		case n[accepted] == 0 && n[began] > 0:
			a.Stray++
		}
	}
	return a, nil
}

// readLedger adds up the lines of a file. A call of Cancel without an answer is unsure
// only if the process was killed: one that ended in peace has written down what it was
// told.
func readLedger(name string, jobs map[string]map[rune]int) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	waits := map[string]bool{} // for the answer of Cancel
	for s := bufio.NewScanner(f); s.Scan(); {
		line, ref, ok := strings.Cut(s.Text(), " ")
		if !ok || len(line) != 1 {
			continue // the last line of a process that was killed
		}
		switch what := rune(line[0]); what {
		case peace:
			return nil
		case asked:
			waits[ref] = true
		default:
			if what == canceled || what == refused || what == unsure {
				delete(waits, ref)
			}
			if jobs[ref] == nil {
				jobs[ref] = map[rune]int{}
			}
			jobs[ref][what]++
		}
	}
	for ref := range waits {
		if jobs[ref] == nil {
			jobs[ref] = map[rune]int{}
		}
		jobs[ref][unsure]++
	}
	return nil
}

func (a account) String() string {
	return fmt.Sprintf("accepted %d, canceled %d, ran %d; lost %d, canceled and ran %d, twice %d (%.2f %%), unacknowledged and ran %d, canceled without an answer %d",
		a.Accepted, a.Canceled, a.Ran, a.Lost, a.CanceledAndRan, a.Twice, 100*float64(a.Twice)/float64(max(a.Accepted, 1)), a.Stray, a.Uncertain)
}
