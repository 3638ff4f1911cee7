//go:build unix

package main

import (
	"fmt"
	"os"
	"slices"
	"time"
)

// syncCost prints what a synced write costs on this disk at this moment, which is what
// the other figures are to be read beside.
func syncCost() error {
	f, err := os.CreateTemp(os.Getenv("BENCH_DIR"), "sync")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	var took []time.Duration
	for range 300 {
		began := time.Now()
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	fmt.Printf("a synced write of 4 KiB: p50 %s, p99 %s\n", ms(took[150]), ms(took[297]))
	return nil
}
