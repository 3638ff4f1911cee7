//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

const (
	envEngine  = "LIMITS_ENGINE"
	envAddress = "LIMITS_ADDRESS"
	envKind    = "LIMITS_KIND"
	envLedger  = "LIMITS_LEDGER"
)

// notes is the ledger of one worker, while it is written.
type notes struct {
	mu   sync.Mutex
	file *os.File
}

func (n *notes) note(what string, ref durable.Ref, attempt int, at time.Time, rest any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	fmt.Fprintf(n.file, "%s %s %d %d %v\n", what, ref, attempt, at.UnixNano(), rest)
}

// work is the main function of a worker.
func work(engine string) error {
	file, err := os.OpenFile(os.Getenv(envLedger), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	n := &notes{file: file}
	quiet := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	q, err := openQueue(engine, os.Getenv(envAddress), n, durable.WithLease(lease), durable.WithLogger(quiet))
	if err != nil {
		return err
	}
	kind := os.Getenv(envKind)
	q.Handle(kind, func(ctx context.Context, a *durable.Attempt) error {
		n.note("b", a.Ref, a.Number, time.Now(), a.Job.Lane)
		switch kind {
		case kindRunning:
			time.Sleep(handling/2 + rand.N(handling))
		case kindLanes:
			time.Sleep(handling)
		}
		n.note("e", a.Ref, a.Number, time.Now(), a.Job.Lane)
		return nil
	})
	return q.Run(context.Background())
}

// noting is an engine whose claims of what has a rate are written down: each with the time of
// its token by the engine's clock. Where the token was there already, that is when the claim
// is answered: it is not used before.
type noting struct {
	driver.Engine
	notes *notes
}

func (e *noting) Work(ctx context.Context, c driver.WorkConfig) (driver.Worker, error) {
	w, err := e.Engine.Work(ctx, c)
	return &notingWorker{w, e.notes}, err
}

type notingWorker struct {
	driver.Worker
	notes *notes
}

func (w *notingWorker) Claim(ctx context.Context, held []*driver.Delivery) []driver.ClaimResult {
	verdicts := w.Worker.Claim(ctx, held)
	answered := time.Now()
	for i, v := range verdicts {
		if v.Status != driver.Granted || held[i].Record.Kind != kindRate {
			continue
		}
		at := v.At
		if at.IsZero() {
			at = answered
		}
		w.notes.note("t", held[i].Ref, v.Attempt, at, "")
	}
	return verdicts
}

// attempt is what a ledger says of one.
type attempt struct {
	lane       string
	begin, end time.Time
}

type ledger struct {
	attempts []attempt
	tokens   []time.Time
}

// began returns how many attempts of a lane have begun between two times.
func (l *ledger) began(lane string, from, to time.Time) int {
	n := 0
	for _, a := range l.attempts {
		if a.lane == lane && a.begin.After(from) && a.begin.Before(to) {
			n++
		}
	}
	return n
}

// read reads the ledgers of all workers of a kind.
func (f *fleet) read(kind string) (*ledger, error) {
	l := &ledger{}
	paths, err := filepath.Glob(filepath.Join(f.dir, kind+"-*"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		if err := l.add(path, f.kills[filepath.Base(path)]); err != nil {
			return nil, err
		}
	}
	if len(l.attempts) == 0 {
		return nil, errors.New("nothing has run")
	}
	slices.SortFunc(l.tokens, time.Time.Compare)
	slices.SortFunc(l.attempts, func(a, b attempt) int { return a.begin.Compare(b.begin) })
	return l, nil
}

// add reads one. An attempt without an end ended when its worker was killed; zero: it lives.
func (l *ledger) add(path string, killed time.Time) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if killed.IsZero() {
		killed = time.Now()
	}
	open := map[string]attempt{}
	for s := bufio.NewScanner(file); s.Scan(); {
		w := strings.SplitN(s.Text(), " ", 5)
		if len(w) < 5 {
			continue // torn by the kill
		}
		ns, err := strconv.ParseInt(w[3], 10, 64)
		if err != nil {
			return err
		}
		at, id := time.Unix(0, ns), w[1]+" "+w[2]
		if w[0] == "t" {
			l.tokens = append(l.tokens, at)
			continue
		}
		if w[0] == "b" {
			open[id] = attempt{lane: w[4], begin: at}
			continue
		}
		a := open[id]
		delete(open, id)
		a.end = at
		l.attempts = append(l.attempts, a)
	}
	for _, a := range open {
		a.end = killed
		l.attempts = append(l.attempts, a)
	}
	return nil
}

func (l *ledger) begins() (at []time.Time) {
	for _, a := range l.attempts {
		at = append(at, a.begin)
	}
	return at
}

// mostIn returns how many of some times, which are sorted, are in one span at most.
func mostIn(at []time.Time, span time.Duration) (most int) {
	for i, from := range at {
		k, _ := slices.BinarySearchFunc(at, from.Add(span), time.Time.Compare)
		most = max(most, k-i)
	}
	return most
}

// most returns how many ran at once at most, and of one lane.
func (l *ledger) most() (all, ofLane int) {
	type change struct {
		at   time.Time
		by   int
		lane string
	}
	var changes []change
	for _, a := range l.attempts {
		changes = append(changes, change{a.begin, 1, a.lane}, change{a.end, -1, a.lane})
	}
	slices.SortFunc(changes, func(a, b change) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return a.by - b.by
	})
	inside, lanes := 0, map[string]int{}
	for _, c := range changes {
		inside += c.by
		lanes[c.lane] += c.by
		all, ofLane = max(all, inside), max(ofLane, lanes[c.lane])
	}
	return all, ofLane
}
