package workload

import (
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/result"
	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
)

// Every case runs on every subject that it does not leave out, and gives a line
// for each of its configurations. The figures mean nothing here.
func TestEachCaseOnEachSubject(t *testing.T) {
	for _, w := range All(Tiny) {
		for _, c := range w.Cases {
			for _, s := range subject.All() {
				if c.Without(s) != "" {
					continue
				}
				t.Run(w.Name+"/"+c.Name+"/"+s.Name, func(t *testing.T) {
					t.Parallel()
					checkCase(t, c, s)
				})
			}
		}
	}
}

func checkCase(t *testing.T, c Case, s subject.Subject) {
	var mu sync.Mutex
	var seen map[string]bool
	patiently(t, func() {
		seen = map[string]bool{}
		run(t, c, s, &mu, seen)
	})
	for _, config := range c.Configs {
		lacks := isReset(config) && !s.New(subject.Options{}).CanReset()
		if !seen[config] && !lacks {
			t.Errorf("no line for %s", config)
		}
	}
}

// patiently calls f again when it fails because the machine is busy with other tests: a
// load that is due soon comes too late then. So do what some subjects have to run, which
// looks as if they had lost it: they get fewer attempts.
func patiently(t *testing.T, f func()) {
	attempt := func() (failure Failure) {
		defer func() {
			if r := recover(); r != nil {
				var ok bool
				if failure, ok = r.(Failure); !ok {
					panic(r)
				}
			}
		}()
		f()
		return ""
	}
	var failure Failure
	for tries, lost := 0, 0; tries < 20 && lost < 4; tries++ {
		if failure = attempt(); failure == "" {
			return
		}
		if !strings.HasPrefix(string(failure), TooSlow) {
			lost++
		}
	}
	t.Fatal(failure)
}

// run notes in seen, which mu guards, the configurations that gave a line.
func run(t *testing.T, c Case, s subject.Subject, mu *sync.Mutex, seen map[string]bool) {
	c.Run(s, func(config string, n, _ int, values ...result.Value) {
		mu.Lock()
		defer mu.Unlock()
		if seen[config] || !slices.Contains(c.Configs, config) || n <= 0 || len(values) == 0 {
			t.Errorf("line %s of %d operations and %d values: want one of %v, once", config, n, len(values), c.Configs)
		}
		seen[config] = true
		for _, v := range values {
			if math.IsNaN(v.Value) || math.IsInf(v.Value, 0) {
				t.Errorf("%s is %v %s", config, v.Value, v.Unit)
			}
		}
	})
}

// A column that no case fills would be an empty column for ever.
func TestEachColumnHasACase(t *testing.T) {
	for _, size := range []Size{Full, Quick, Tiny} {
		for _, w := range All(size) {
			var configs []string
			names := map[string]bool{}
			for _, c := range w.Cases {
				configs = append(configs, c.Configs...)
				if names[c.Name] {
					t.Errorf("%s has two cases %s", w.Name, c.Name)
				}
				names[c.Name] = true
				if c.Timeout <= 0 {
					t.Errorf("%s, %s has no timeout", w.Name, c.Name)
				}
			}
			for _, table := range w.Tables {
				for _, column := range table.Columns {
					if !slices.Contains(configs, column.Config) {
						t.Errorf("%s: no case gives %s, of column %s", w.Name, column.Config, column.Head)
					}
				}
			}
		}
	}
}

func TestPlanOfTheMix(t *testing.T) {
	const rate, spell, longest = 1000, 10 * time.Second, 2 * time.Second
	steps := plan(rate, spell, longest)
	counts := map[action]int{}
	begun, ended := map[int32]bool{}, map[int32]bool{}
	for i, s := range steps {
		counts[s.action]++
		if i > 0 && s.at < steps[i-1].at {
			t.Fatalf("step %d is before the one before", i)
		}
		switch s.action {
		case start, startToFire:
			if begun[s.timer] || s.delay < time.Millisecond || s.delay > longest {
				t.Fatalf("step %d starts timer %d a second time, or by %v", i, s.timer, s.delay)
			}
			begun[s.timer] = true
		default:
			if !begun[s.timer] || ended[s.timer] {
				t.Fatalf("step %d is on timer %d, which is not pending", i, s.timer)
			}
			ended[s.timer] = s.action == cancel
		}
	}
	const n = rate * 10
	near := func(what string, got int, share float64) {
		if want := share * n; math.Abs(float64(got)-want) > 0.02*n {
			t.Errorf("%d %s, want about %.0f", got, what, want)
		}
	}
	near("fire", counts[startToFire], 0.1)
	near("are reset", counts[reset], 0.2)
	near("are canceled", counts[cancel], 0.9)
	if !slices.Equal(steps, plan(rate, spell, longest)) {
		t.Error("the plan of another subject differs")
	}
}

// Each connection falls silent for one and a half timeouts, and is opened anew at the end
// of that.
func TestPlanOfTheSessions(t *testing.T) {
	l := sessionLoad{sessions: 1000, timeout: time.Second, cycle: 10 * time.Second}
	step := l.cycle / time.Duration(l.sessions)
	spells := make([]int, l.sessions)
	for at := time.Duration(0); at < l.cycle; at += step {
		for i := range spells {
			if l.silent(i, at) {
				spells[i]++
			}
		}
	}
	const want = 1500 * time.Millisecond
	for i, n := range spells {
		if silence := time.Duration(n) * step; silence < want-step || silence > want+step {
			t.Errorf("connection %d is silent for %v of %v, want %v", i, silence, l.cycle, want)
		}
	}
	opened := map[int]bool{}
	for k := range l.sessions {
		i, at := l.reopened(k), time.Duration(k)*step
		opened[i] = true
		if k > 2 && (!l.silent(i, at-2*step) || l.silent(i, at+2*step)) {
			t.Errorf("connection %d is opened at %v, which is not the end of its silence", i, at)
		}
		if n := l.reopenings(at); n != k {
			t.Errorf("%d have been opened at %v, want %d", n, at, k)
		}
	}
	if len(opened) != l.sessions {
		t.Errorf("%d of %d are opened within a cycle", len(opened), l.sessions)
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0", 300: "300", 1200: "1.2 k", 10_000: "10 k", 1_000_000: "1 M", 2_500_000: "2.5 M", 12_345: "12345"} {
		if got := Count(n); got != want {
			t.Errorf("%d is written %q, want %q", n, got, want)
		}
	}
}
