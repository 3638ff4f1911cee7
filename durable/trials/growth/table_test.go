package growth

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"
)

var (
	table    = flag.Bool("table", false, "print the table")
	syncCost = flag.Duration("sync", 150*time.Microsecond, "what a synced write takes")
	life     = flag.Duration("life", 84*time.Microsecond, "processor time of a job's life")
	length   = flag.Duration("for", 3*time.Second, "virtual time that is measured")
	bytes    = flag.Int("bytes", 550, "on disk, of a job that waits")
)

// The table of durable/RESULTS.md, by the figures of the flags.
func TestTable(t *testing.T) {
	if !*table {
		t.Skip("without -table")
	}
	m := model{sync: *syncCost, write: *life / 3, few: 12, batchSyncs: 10, most: 1000, ahead: 100 * time.Millisecond}
	fmt.Println("| partitions | jobs a second | of each | late by p50 | p99 | max | writes in a commit | pending with 3 h of delay | on disk, 3 replicas |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, partitions := range []int{1, 10, 100} {
		for _, each := range []int{2000, 5000, 10000, 12000, 15000} {
			fmt.Println(row(m.simulate(partitions, partitions*each, *length), partitions, each, *bytes))
		}
	}
}

func row(r result, partitions, each, bytes int) string {
	slices.Sort(r.late)
	at := func(q float64) time.Duration {
		return r.late[min(int(q*float64(len(r.late))), len(r.late)-1)].Round(10 * time.Microsecond)
	}
	pending := float64(partitions*each) * 3 * 3600
	return fmt.Sprintf("| %d | %d | %d | %v | %v | %v | %.0f | %.1e | %.1f TB |", partitions, partitions*each, each,
		at(0.5), at(0.99), at(1), r.perCommit, pending, pending*float64(bytes)*3/1e12)
}
