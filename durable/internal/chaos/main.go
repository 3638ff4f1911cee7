// Command chaos kills what runs durable jobs, and proves from ledgers on disk that no job was
// lost, and that none ran that was canceled.
//
//	go run ./internal/chaos -for 10m                # each fault for ten minutes
//	go run ./internal/chaos -fault cluster -for 2m
//	go run ./internal/chaos -engine postgres -for 2m
//
// The faults are those of [scenarios]. It runs its own program as the processes that it
// kills, on loopback ports. The exit status is 1 if something was lost.
package main

import (
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
	fault := flag.String("fault", "", "only this one: "+fmt.Sprint(names("")))
	engine := flag.String("engine", "", "only those of this one: "+onJetStream+" or "+onPostgres)
	rate := flag.Int("rate", 400, "jobs a second")
	keep := flag.Bool("keep", false, "keep the directory")
	flag.Parse()
	ok := true
	for _, name := range names(*engine) {
		if *fault != "" && *fault != name {
			continue
		}
		if err := try(name, settings{length: *length, rate: *rate, near: 6 * time.Second, far: 25 * time.Second, leaders: 2}, *keep); err != nil {
			fmt.Printf("%-12s FAILED: %v\n", name, err)
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
	fmt.Printf("%-12s %v\n", name, r)
	if err != nil {
		return err
	}
	return r.check()
}
