package main

import (
	"testing"
	"time"
)

// A partition that has less to do than it can is on time; one that has more falls behind.
func TestKeepsUpOrNot(t *testing.T) {
	m := model{sync: 150 * time.Microsecond, write: 28 * time.Microsecond, few: 12, batch: 10, most: 1000, ahead: 100 * time.Millisecond}
	run := func(each int) (worst time.Duration, jobs int) {
		var due []time.Duration
		for i := range each {
			due = append(due, time.Second+time.Duration(i)*time.Second/time.Duration(each))
		}
		late, _ := m.simulate(due)
		for _, l := range late {
			worst = max(worst, l)
		}
		return worst, len(late)
	}
	if worst, n := run(5000); worst > 0 || n != 5000 {
		t.Errorf("%d jobs, late by up to %v", n, worst)
	}
	if worst, _ := run(30000); worst < time.Second/2 {
		t.Errorf("with three times what it can do it is late by %v only", worst)
	}
}
