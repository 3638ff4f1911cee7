//go:build unix

// Command chaos does to what runs durable jobs what can happen to it, and proves from
// ledgers on disk that no job was lost, that none ran that was canceled, and that none
// ran early.
//
//	go run ./chaos -for 10m                # each fault for ten minutes
//	go run ./chaos -total 1h               # all of them in an hour
//	go run ./chaos -fault cluster -for 2m
//	go run ./chaos -engine postgres -for 2m
//
// The faults are those of [scenarios]. What is left after each is run to its end, which
// takes as long as that needs. It runs its own program as the processes that it harms, on
// loopback ports. The exit status is 1 if a promise was broken.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"
)

// statusFailed is the status of a process of the test that has returned an error.
const statusFailed = 4

func main() {
	if role := os.Getenv(envRole); role != "" {
		if err := runRole(role); err != nil {
			fmt.Fprintln(os.Stderr, role+":", err)
			os.Exit(statusFailed)
		}
		return
	}
	length := flag.Duration("for", time.Minute, "how long each fault goes on")
	total := flag.Duration("total", 0, "how long all faults together go on, instead of -for")
	fault := flag.String("fault", "", "only this one: "+fmt.Sprint(names("")))
	engine := flag.String("engine", "", "only those of this one: "+onJetStream+" or "+onPostgres)
	rate := flag.Int("rate", 400, "jobs a second")
	keep := flag.Bool("keep", false, "keep the directory")
	flag.Parse()
	chosen := names(*engine)
	if *fault != "" {
		if _, ok := scenarios[*fault]; !ok {
			fmt.Fprintf(os.Stderr, "-fault %s: there are %v\n", *fault, names(""))
			os.Exit(2)
		}
		chosen = []string{*fault}
	}
	if *total > 0 {
		*length = *total / time.Duration(len(chosen))
	}
	fmt.Printf("%d faults, each for %v\n", len(chosen), *length)
	ok := true
	set := settings{length: *length, rate: *rate, near: 6 * time.Second, far: 25 * time.Second, leaders: 2}
	for _, name := range chosen {
		err := try(name, set, *keep)
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			fmt.Printf("%-15s left out: %v\n", name, err)
		case err != nil:
			fmt.Printf("%-15s FAILED: %v\n", name, err)
			ok = false
		}
	}
	if !ok {
		os.Exit(1)
	}
}

// names returns the faults of an engine, or of all.
func names(engine string) (some []string) {
	for name, f := range scenarios {
		if engine == "" || engine == f.engine {
			some = append(some, name)
		}
	}
	slices.Sort(some)
	return some
}

// try runs a fault and prints what the ledgers say.
func try(name string, set settings, keep bool) error {
	dir, err := os.MkdirTemp("", "chaos-"+name)
	if err != nil {
		return err
	}
	if !keep {
		defer os.RemoveAll(dir)
	}
	r, err := runScenario(name, dir, set)
	if errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	fmt.Printf("%-15s %v\n", name, r)
	if err != nil {
		return err
	}
	return r.check()
}
