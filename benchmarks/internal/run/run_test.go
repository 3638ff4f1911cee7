package run

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/result"
	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
	"github.com/tickwheel/tickwheel/benchmarks/internal/workload"
)

// The children of these tests are this program too. They do what befits the
// subject's name.
func TestMain(m *testing.M) {
	if i := slices.Index(os.Args, "-child"); i > 0 {
		child(os.Args[len(os.Args)-1])
		return
	}
	os.Exit(m.Run())
}

func child(name string) {
	line := func(config string) {
		fmt.Println(result.Line{Key: result.Key{Workload: "Test", Config: config, Subject: name}, Procs: 3, N: 1,
			Values: []result.Value{{Value: float64(len(os.Getenv("GOMAXPROCS"))), Unit: "ns/op"}}})
	}
	switch name {
	case "RussellLuo":
		line("a=1")
		panic("no more")
	case "gost":
		line("a=1")
		time.Sleep(time.Hour)
	case "go-zero":
		line("a=1")
	case "wheel.Schedule", "wheel.AfterFunc":
		line("a=1")
		tries, err := os.OpenFile(os.Getenv(triesFile), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
		if err != nil {
			panic(err)
		}
		fmt.Fprintln(tries, name)
		before, _ := os.ReadFile(tries.Name())
		if n := strings.Count(string(before), name); n < 3 || name == "wheel.AfterFunc" {
			panic(workload.Failure(workload.TooSlow + "it was late"))
		}
		line("a=2")
	case "heap":
		panic(workload.Failure("it lost some"))
	default:
		line("a=1")
		line("a=2")
	}
}

// triesFile names the variable of the environment that names the file in which children
// note that they were begun.
const triesFile = "BENCHMARKS_TEST_TRIES"

// Whoever fails because the machine is busy is tried again, but not for ever.
func TestBusyMachineIsTriedAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tries")
	t.Setenv(triesFile, file)
	c := workload.Case{Timeout: time.Minute, Without: func(s subject.Subject) string {
		if s.Name != "wheel.Schedule" && s.Name != "wheel.AfterFunc" {
			return workload.NotHere
		}
		return ""
	}}
	w := testWorkload(c)
	w.Rounds = 1
	set := runTest(t, w, time.Hour)
	if got := subjectsOf(set, "a=2", 1); !slices.Equal(got, []string{"wheel.Schedule"}) {
		t.Errorf("a=2 is of %v", got)
	}
	if got := subjectsOf(set, "a=1", 1); !slices.Equal(got, []string{"wheel.Schedule", "wheel.AfterFunc"}) {
		t.Errorf("a=1 is of %v, want each once", got)
	}
	tries, _ := os.ReadFile(file)
	if n := strings.Count(string(tries), "AfterFunc"); n != attempts {
		t.Errorf("there were %d attempts, want %d", n, attempts)
	}
	if len(set.Misses) != 1 || !strings.HasPrefix(set.Misses[0].Reason, workload.TooSlow) {
		t.Errorf("misses %v", set.Misses)
	}
}

func testWorkload(c workload.Case) workload.Workload {
	c.Name, c.Configs = "case", []string{"a=1", "a=2"}
	return workload.Workload{Name: "Test", Rounds: 2, Share: time.Hour, Cases: []workload.Case{c}}
}

func runTest(t *testing.T, w workload.Workload, budget time.Duration) *result.Set {
	t.Helper()
	var raw bytes.Buffer
	plan := Plan{Subjects: regexp.MustCompile("time|Luo|go|heap|wheel"), Budget: budget, Raw: &raw, Progress: io.Discard}
	r := newRunner(plan, w, time.Now(), w.Share)
	r.run()
	set, err := result.Read(&raw)
	if err != nil || r.err != nil {
		t.Fatal(err, r.err)
	}
	return set
}

func subjectsOf(set *result.Set, config string, round int) (names []string) {
	for _, l := range set.Lines {
		if l.Config == config && l.Round == round {
			names = append(names, l.Subject)
		}
	}
	return names
}

func TestCrashesAndHangsAreContained(t *testing.T) {
	set := runTest(t, testWorkload(workload.Case{
		Timeout: 10 * time.Second, // what the one that hangs costs; others begin in time on a busy machine
		Without: func(s subject.Subject) string {
			if s.Name == subject.None || strings.HasPrefix(s.Name, "wheel") || s.Kind != subject.Functions {
				return workload.NotHere
			}
			return ""
		},
	}), time.Hour)
	// What came before a crash or a timeout is kept, and neither is tried again.
	if got := subjectsOf(set, "a=1", 1); !slices.Equal(got, []string{"time.AfterFunc", "RussellLuo", "go-zero", "gost"}) {
		t.Errorf("round 1 has %v", got)
	}
	if got := subjectsOf(set, "a=1", 2); !slices.Equal(got, []string{"time.AfterFunc", "go-zero"}) {
		t.Errorf("round 2 has %v", got)
	}
	var misses []string
	for _, m := range set.Misses {
		misses = append(misses, fmt.Sprint(m.Config, " ", m.Subject, " ", m.Failed, " ", m.Reason))
	}
	want := []string{
		"a=2 RussellLuo true it crashed: no more",
		"a=2 go-zero false it is given 1 M at most: ",
		"a=2 gost true it had not ended after 10s",
		"a=1 heap true it lost some",
		"a=2 heap true it lost some",
	}
	if len(misses) != len(want) {
		t.Fatalf("misses %q", misses)
	}
	for i := range want {
		if !strings.HasPrefix(misses[i], want[i]) {
			t.Errorf("miss %q, want %q", misses[i], want[i])
		}
	}
}

func TestNothingBeginsAfterTheBudget(t *testing.T) {
	c := workload.Case{Timeout: time.Minute, Without: func(subject.Subject) string { return "" }}
	set := runTest(t, testWorkload(c), -1)
	if len(set.Lines) != 0 || len(set.Misses) == 0 || !strings.Contains(set.Misses[0].Reason, "time for the whole run") {
		t.Errorf("%d lines, misses %v", len(set.Lines), set.Misses)
	}
}

func TestCasesOfFewRounds(t *testing.T) {
	without := func(s subject.Subject) string {
		if s.Name != subject.Baseline {
			return workload.NotHere
		}
		return ""
	}
	for _, together := range []bool{false, true} {
		c := workload.Case{Timeout: time.Minute, Rounds: 1, Together: together, Without: without}
		set := runTest(t, testWorkload(c), time.Hour)
		if one, two := subjectsOf(set, "a=2", 1), subjectsOf(set, "a=2", 2); len(one) != 1 || len(two) != 0 {
			t.Errorf("together %v: round 1 has %v and round 2 %v", together, one, two)
		}
	}
}

func TestNoRoundBeginsThatWouldTakeTooLong(t *testing.T) {
	without := func(s subject.Subject) string {
		if s.Name != subject.Baseline {
			return workload.NotHere
		}
		return ""
	}
	w := testWorkload(workload.Case{Timeout: time.Minute, Without: without})
	w.Share = time.Nanosecond
	set := runTest(t, w, time.Hour)
	if one, two := subjectsOf(set, "a=2", 1), subjectsOf(set, "a=2", 2); len(one) != 1 || len(two) != 0 {
		t.Errorf("round 1 has %v and round 2 %v", one, two)
	}
}

func TestChildRunsOneCase(t *testing.T) {
	var out bytes.Buffer
	if err := Child(workload.Tiny, "Connections", "push back 10", subject.Baseline, &out); err != nil {
		t.Fatal(err)
	}
	set, err := result.Read(&out)
	if err != nil || len(set.Lines) != 2 {
		t.Errorf("%d lines, %v", len(set.Lines), err)
	}
	if err := Child(workload.Tiny, "Connections", "none", subject.Baseline, &out); err == nil {
		t.Error("no error for a case that does not exist")
	}
	if err := Child(workload.Tiny, "Connections", "push back 10", "nobody", &out); err == nil {
		t.Error("no error for a subject that does not exist")
	}
}
