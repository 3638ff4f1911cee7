package main

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/tickwheel/tickwheel/durable/internal/pgserver"
)

// The test is the processes that it kills, too, when it is told to be.
func TestMain(m *testing.M) {
	if os.Getenv(envRole) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// Each fault for some seconds. `make chaos` has them for as long as one likes.
func TestFaults(t *testing.T) { runShort(t, onJetStream, len(scenarios)) }

// Of these few at once: some may not be late by the lease because the machine is busy.
func TestPostgresFaults(t *testing.T) {
	pgserver.Test(t) // or it is skipped
	runShort(t, onPostgres, 3)
}

// runShort runs an engine's faults, so many at once.
func runShort(t *testing.T, engine string, atOnce int) {
	var wg sync.WaitGroup // rather than t.Parallel, which has two at once on two processors
	defer wg.Wait()
	turns := make(chan struct{}, atOnce)
	set := short
	if engine == onPostgres {
		set.far = 4 * time.Second // there is no cascade to wait for
	}
	for _, name := range names(engine) {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			t.Run(name, func(t *testing.T) {
				r, err := runScenario(name, t.TempDir(), set)
				t.Log(r)
				if err == nil {
					err = r.check()
				}
				if err != nil {
					t.Fatal(err)
				}
				if r.Kills+r.Freezes+r.Provoked == 0 {
					t.Fatal("nothing happened")
				}
			})
		})
	}
}

var short = settings{length: 6 * time.Second, rate: 60, near: 2 * time.Second, far: 14 * time.Second, leaders: 1, anyTwice: true}

// What the audit counts, it finds.
func TestAudit(t *testing.T) {
	dir := t.TempDir()
	lines := map[string]string{
		"ledger-1": "A ok\nA lost\nA canceled\nc canceled\nC canceled\nA both\nc both\nC both\nA maybe\nc maybe\nA no\nc no\nN no\n",
		"ledger-2": "R ok\nR both\nD both\nR twice\nD twice\nR twice\nB twice\nA twice\nR stray\nR",
		"ledger-3": "A failed\nc failed\nU failed\nA forgotten\nc forgotten\nE end\n",
	}
	for name, text := range lines {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a, err := audit(dir)
	if err != nil {
		t.Fatal(err)
	}
	a.LostRefs = nil
	want := account{Accepted: 9, Canceled: 2, Ran: 4, Attempts: 5, Lost: 3, CanceledAndRan: 1, Uncertain: 2, Twice: 1, Stray: 1, Early: 1}
	if fmt.Sprintf("%+v", a) != fmt.Sprintf("%+v", want) {
		t.Fatalf("%+v, not %+v", a, want)
	}
	bad := result{account: a, TwiceLimit: 1}
	if bad.check() == nil {
		t.Fatal("what was lost is found well")
	}
}
