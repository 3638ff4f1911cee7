//go:build unix

package main

import (
	"fmt"
	"testing"
	"time"
)

// An attempt that begins within a cooldown of its kind and lane is counted, but for the second in which one that was
// claimed before may begin.
func TestAuditCooldowns(t *testing.T) {
	at := func(s float64) time.Time { return time.Unix(1000, 0).Add(time.Duration(s * float64(time.Second))) }
	var b book
	b.add("w", renewed, fmt.Sprint(at(0).UnixNano()), at(0))
	b.add("w", renewed, fmt.Sprint(at(2.5).UnixNano()), at(2.5))
	b.add("w", cooldownStored, fmt.Sprint(cooled, "|a|", at(5).UnixNano()), at(0))
	for i, one := range []struct {
		lane string
		at   float64
	}{{"a", 1.9}, {"b", 3}, {"a", 5.1}, {"a", 4.9}} {
		b.add("w", boutBegan, fmt.Sprint(cooled, "|", one.lane, "|", i, "/1"), at(one.at))
	}
	b.add("ruler", limitsEnd, "all", at(8))
	var got account
	if b.settle(&got); got.Cooldowns != 1 || got.Broken.CooledAndRan != 1 {
		t.Fatalf("%+v", got)
	}
}
