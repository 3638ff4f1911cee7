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
)

const (
	envEngine  = "LIMITS_ENGINE"
	envAddress = "LIMITS_ADDRESS"
	envKind    = "LIMITS_KIND"
	envLedger  = "LIMITS_LEDGER"
)

// work is the main function of a worker.
func work(engine string) error {
	ledger, err := os.OpenFile(os.Getenv(envLedger), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	quiet := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	q, err := openQueue(engine, os.Getenv(envAddress), durable.WithLease(lease), durable.WithLogger(quiet))
	if err != nil {
		return err
	}
	var mu sync.Mutex
	note := func(what string, a *durable.Attempt) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(ledger, "%s %s %d %d %s\n", what, a.Ref, a.Number, time.Now().UnixNano(), a.Job.Lane)
	}
	kind := os.Getenv(envKind)
	q.Handle(kind, func(ctx context.Context, a *durable.Attempt) error {
		note("b", a)
		if kind != kindRate {
			time.Sleep(handling/2 + rand.N(handling))
		}
		note("e", a)
		return nil
	})
	return q.Run(context.Background())
}

// attempt is what a ledger says of one.
type attempt struct {
	lane       string
	begin, end time.Time
}

type ledger struct{ attempts []attempt }

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
	slices.SortFunc(l.attempts, func(a, b attempt) int { return a.begin.Compare(b.begin) })
	return l, nil
}

// add reads one. What did not end did so when its worker was killed; zero: it lives.
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
