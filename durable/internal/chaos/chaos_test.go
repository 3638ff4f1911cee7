package main

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
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
func TestFaults(t *testing.T) {
	var wg sync.WaitGroup // rather than t.Parallel, which has two at once on two processors
	defer wg.Wait()
	for _, name := range names() {
		wg.Go(func() {
			t.Run(name, func(t *testing.T) {
				r, err := runScenario(name, t.TempDir(), short)
				t.Log(r)
				if err == nil {
					err = r.check()
				}
				if err != nil {
					t.Fatal(err)
				}
				if r.Kills+r.Freezes == 0 {
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
		"ledger-2": "R ok\nR both\nD both\nR twice\nD twice\nR twice\nA twice\nR stray\nR",
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
	want := account{Accepted: 9, Canceled: 2, Ran: 4, Attempts: 5, Lost: 3, CanceledAndRan: 1, Uncertain: 2, Twice: 1, Stray: 1}
	if fmt.Sprintf("%+v", a) != fmt.Sprintf("%+v", want) {
		t.Fatalf("%+v, not %+v", a, want)
	}
	bad := result{account: a, TwiceLimit: 1}
	if bad.check() == nil {
		t.Fatal("what was lost is found well")
	}
}
