package workload

import (
	"fmt"
	"strings"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
)

// connections are idle timeouts: pushed back with all traffic, hardly ever due.
func connections(size Size) Workload {
	few := 10
	many := pick(size, []int{100_000, 1_000_000}, []int{100_000}, []int{100})
	most := pick(size, []int{10_000_000}, nil, nil)
	spell := pick(size, 200*time.Millisecond, 80*time.Millisecond, time.Millisecond)
	w := Workload{
		Name:  "Connections",
		Title: "Timers that are pushed back",
		Shows: "There are so many timers of 60 s, and one at random is pushed back to 60 s from now: by " +
			"Reset, or by a cancel and an add. Package time does not move a timer that is set to a later " +
			"time until its old time comes or it reaches the top of the heap. Ten timers are in the " +
			"processor's cache; of the others, each push meets the memory. A wheel's Timer takes a lock at " +
			"its first Reset, and mostly none after that. So each timer is pushed back once before, in " +
			"random order, which is the column of the first Reset.",
		Rounds: pick(size, 5, 3, 1),
		Share:  pick(size, 170*time.Second, 9*time.Second, time.Second),
	}
	resets := Table{Caption: "ns for each Reset (ratio)"}
	replaces := Table{Caption: "ns for each cancel and add (ratio)"}
	for _, n := range append(append([]int{few}, many...), most...) {
		w.Cases = append(w.Cases, pushBackCase(size, n, n != few, spell))
		for _, t := range []*Table{&resets, &replaces} {
			config := pushReset(n)
			if t == &replaces {
				config = pushReplace(n)
			}
			if t == &resets && n != few {
				t.Columns = append(t.Columns, Column{Head: Count(n) + ", the first", Config: pushFirst(n), Unit: "ns/op", Ratio: true})
			}
			t.Columns = append(t.Columns, Column{Head: Count(n), Config: config, Unit: "ns/op", Ratio: true},
				Column{Head: "CPU ns", Config: config, Unit: "cpu-ns/op", Ratio: true})
		}
		replaces.Columns = append(replaces.Columns, Column{Head: "B", Config: pushReplace(n), Unit: "B/op"})
	}
	if len(most) > 0 {
		over := Count(most[0]) + " over " + Count(few)
		resets.Columns = append(resets.Columns, Column{Head: over, Config: pushReset(most[0]), Unit: "ns/op", Over: pushReset(few)})
		replaces.Columns = append(replaces.Columns, Column{Head: over, Config: pushReplace(most[0]), Unit: "ns/op", Over: pushReplace(few)})
	}
	w.Tables = []Table{resets, replaces}
	for _, n := range append([]int{few}, many...) {
		w.Headlines = append(w.Headlines, Headline{
			Work: "Reset of " + Count(n) + " timers at random", Subject: "wheel.AfterFunc", Config: pushReset(n), Unit: "ns/op",
		})
	}
	return w
}

const opReset = "op=reset/"

func pushFirst(n int) string   { return fmt.Sprintf(opReset+"push=first/timers=%d", n) }
func pushReset(n int) string   { return fmt.Sprintf(opReset+"timers=%d", n) }
func pushReplace(n int) string { return fmt.Sprintf("op=cancel+add/timers=%d", n) }

// isReset reports whether a configuration is of subjects that have a Reset only.
func isReset(config string) bool { return strings.HasPrefix(config, opReset) }

// pushBackCase has the first Reset of each timer as a figure of its own if first is set.
func pushBackCase(size Size, n int, first bool, spell time.Duration) Case {
	reset, replace := pushReset(n), pushReplace(n)
	configs := []string{reset, replace}
	if first {
		configs = append(configs, pushFirst(n))
	}
	c := Case{
		Name: "push back " + Count(n), Configs: configs,
		Timeout: pick(size, 60*time.Second, 15*time.Second, 15*time.Second),
		Without: func(s subject.Subject) string {
			if few := s.BearsOften(n); few < n {
				return fmt.Sprintf("it is given %s at most: %s", Count(few), s.Why)
			}
			return timersOnly(s)
		},
		Run: func(s subject.Subject, emit Emit) {
			t := s.New(subject.Options{})
			t.Keep(n)
			for i := range n {
				t.Set(i, time.Minute, noop)
			}
			r := seeded(n)
			order := r.Perm(n)
			measure.Settle()
			if t.CanReset() {
				before := measure.Now()
				for _, i := range order {
					t.Reset(i, time.Minute)
				}
				if first {
					emit(pushFirst(n), n, n, perOp(before, measure.Now(), n)...)
				}
				ops, values := timed(spell, func() { t.Reset(r.IntN(n), time.Minute) })
				emit(reset, ops, n, values...)
			}
			ops, values := timed(spell, func() {
				i := r.IntN(n)
				t.Cancel(i)
				t.Set(i, time.Minute, noop)
			})
			emit(replace, ops, n, values...)
		},
	}
	if n >= 10_000_000 {
		c.Rounds = 1 // most of its time goes to the start of so many
	}
	return c
}
