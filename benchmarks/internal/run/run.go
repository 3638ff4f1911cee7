// Package run carries the workloads out: each case on each subject in a process of
// its own, the subjects in turn within each round.
//
// A process of its own means that no subject meets the heap, the goroutines or
// the timers of another, and that one that crashes or hangs takes nothing with it.
// It is killed when its time is over, and the table says so.
package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/result"
	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
	"github.com/tickwheel/tickwheel/benchmarks/internal/workload"
)

// Plan is what to run.
type Plan struct {
	Size      workload.Size
	SizeFlag  string // what tells a child the size
	Workloads *regexp.Regexp
	Subjects  *regexp.Regexp
	Rounds    int           // instead of each workload's own; zero means that
	Budget    time.Duration // after which nothing more is begun
	Raw       io.Writer     // the results in Go's benchmark format
	Progress  io.Writer
}

// Run runs the plan. It returns an error only when it cannot write.
func (p Plan) Run() error {
	begin := time.Now()
	var until time.Duration
	for _, w := range workload.All(p.Size) {
		if !p.Workloads.MatchString(w.Name) {
			continue
		}
		fmt.Fprintf(p.Progress, "%-12s", w.Name)
		until += w.Share
		r := newRunner(p, w, begin, until)
		r.run()
		fmt.Fprintf(p.Progress, " %d rounds, %d lines, %d failed, %4.0f s (%.0f s in all)\n",
			r.rounds, r.lines, r.failed, r.took.Seconds(), time.Since(begin).Seconds())
		if r.err != nil {
			return r.err
		}
	}
	return nil
}

// runner runs one workload.
type runner struct {
	Plan
	workload workload.Workload
	begin    time.Time     // of the whole run
	until    time.Duration // of the whole run: when another round must have ended

	rounds, failed int
	took           time.Duration
	cost           map[string]time.Duration // of a case in the last round

	mu    sync.Mutex      // guards what follows: cases that only wait run together
	given map[string]bool // case and subject that are not run again
	lacks map[string]bool // case and subject with parts that are missing, as noted
	lines int
	err   error
}

func newRunner(p Plan, w workload.Workload, begin time.Time, until time.Duration) *runner {
	return &runner{
		Plan: p, workload: w, begin: begin, until: until,
		cost: map[string]time.Duration{}, given: map[string]bool{}, lacks: map[string]bool{},
	}
}

func (r *runner) run() {
	begin := time.Now()
	rounds := r.workload.Rounds
	if r.Rounds > 0 {
		rounds = r.Rounds
	}
	for round := 1; round <= rounds; round++ {
		if round > 1 && time.Since(r.begin)+r.expected(round) > r.until {
			break
		}
		r.write(fmt.Sprintf("# round %d", round))
		r.round(round)
		r.rounds = round
		fmt.Fprint(r.Progress, ".")
	}
	r.took = time.Since(begin)
}

// expected is how long a round will take, by what its cases took in the one before.
func (r *runner) expected(round int) (d time.Duration) {
	for _, c := range r.workload.Cases {
		if c.Rounds == 0 || round <= c.Rounds {
			d += r.cost[c.Name]
		}
	}
	return d
}

func (r *runner) round(round int) {
	for _, c := range r.workload.Cases {
		if c.Rounds > 0 && round > c.Rounds {
			continue
		}
		begin := time.Now()
		var together sync.WaitGroup
		for i, s := range subject.All() {
			if !r.Subjects.MatchString(s.Name) {
				continue
			}
			if !c.Together {
				r.one(c, s)
				continue
			}
			together.Go(func() {
				time.Sleep(time.Duration(i) * 50 * time.Millisecond)
				r.one(c, s)
			})
		}
		together.Wait()
		r.cost[c.Name] = time.Since(begin)
	}
}

// one runs a case on a subject, unless there is a reason not to.
func (r *runner) one(c workload.Case, s subject.Subject) {
	id := c.Name + " " + s.Name
	r.mu.Lock()
	given := r.given[id]
	r.mu.Unlock()
	if given {
		return
	}
	if why := c.Without(s); why != "" {
		r.giveUp(id, c, s, false, why, nil)
		return
	}
	if time.Since(r.begin) > r.Budget {
		r.giveUp(id, c, s, false, "the time for the whole run was over", nil)
		return
	}
	lines, err := r.patiently(c, s)
	have := map[string]bool{}
	for _, l := range lines {
		have[l.Config] = true
		r.write(l.String())
	}
	if err != nil {
		r.giveUp(id, c, s, true, err.Error(), have)
	} else if len(have) < len(c.Configs) {
		why := "it has no such operation"
		if s.Most > 0 {
			why = fmt.Sprintf("it is given %s at most: %s", workload.Count(s.Most), s.Why)
		}
		r.giveUpRest(id, c, s, why, have)
	}
}

// attempts are how often a case is begun that fails because the machine is busy.
const attempts = 3

// patiently runs a case, and again if it fails through no fault of the subject. The
// figures of a failed attempt are dropped.
func (r *runner) patiently(c workload.Case, s subject.Subject) (lines []result.Line, err error) {
	for range attempts {
		lines, err = r.child(c, s)
		if err == nil || !strings.HasPrefix(err.Error(), workload.TooSlow) {
			break
		}
	}
	return lines, err
}

// giveUpRest notes, once, what a subject lacks of a case whose rest it does.
func (r *runner) giveUpRest(id string, c workload.Case, s subject.Subject, why string, have map[string]bool) {
	r.mu.Lock()
	again := r.lacks[id]
	r.lacks[id] = true
	r.mu.Unlock()
	if !again {
		r.note(c, s, false, why, have)
	}
}

// giveUp notes what there will be no results of, and why; it is not tried again.
func (r *runner) giveUp(id string, c workload.Case, s subject.Subject, failed bool, why string, have map[string]bool) {
	r.mu.Lock()
	r.given[id] = true
	if failed {
		r.failed++
	}
	r.mu.Unlock()
	r.note(c, s, failed, why, have)
}

// note writes why results are missing.
func (r *runner) note(c workload.Case, s subject.Subject, failed bool, why string, have map[string]bool) {
	if why == workload.NotHere {
		return
	}
	for _, config := range c.Configs {
		if !have[config] {
			r.write(result.Miss{
				Key:    result.Key{Workload: r.workload.Name, Config: config, Subject: s.Name},
				Failed: failed, Reason: why,
			}.String())
		}
	}
}

func (r *runner) write(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if strings.HasPrefix(line, "Benchmark") {
		r.lines++
	}
	if _, err := fmt.Fprintln(r.Raw, line); err != nil && r.err == nil {
		r.err = err
	}
}

// child runs this program again for one case and one subject.
func (r *runner) child(c workload.Case, s subject.Subject) ([]result.Line, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	procs := c.Procs
	if procs == 0 {
		procs = runtime.NumCPU()
	}
	cmd := exec.CommandContext(ctx, program, "-size", r.SizeFlag, "-child", r.workload.Name, "-case", c.Name, "-subjects", s.Name)
	cmd.Env = append(os.Environ(), fmt.Sprintf("GOMAXPROCS=%d", procs))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second
	failure := cmd.Run()
	set, err := result.Read(&stdout)
	if err != nil {
		return nil, fmt.Errorf("its results cannot be read: %w", err)
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return set.Lines, fmt.Errorf("it had not ended after %v", c.Timeout)
	case failure != nil:
		return set.Lines, errors.New(reason(stderr.String(), failure))
	}
	return set.Lines, nil
}

// reason says what went wrong: a failure that the workload has seen, or the line of
// a crash that says most.
func reason(stderr string, failure error) string {
	for line := range strings.Lines(stderr) {
		for _, prefix := range []string{"panic: ", "fatal error: "} {
			if rest, ok := strings.CutPrefix(line, prefix); ok {
				if seen, ok := strings.CutPrefix(rest, workload.FailurePrefix); ok {
					return strings.TrimSpace(seen)
				}
				return "it crashed: " + strings.TrimSpace(rest)
			}
		}
	}
	return "it crashed: " + failure.Error()
}

// Child is the other side of child: it runs one case on one subject and writes the
// results.
func Child(size workload.Size, workloadName, caseName, subjectName string, out io.Writer) error {
	c, err := workload.Find(size, workloadName, caseName)
	if err != nil {
		return err
	}
	s, ok := subject.Named(subjectName)
	if !ok {
		return fmt.Errorf("no subject %s", subjectName)
	}
	c.Run(s, func(config string, n, timers int, values ...result.Value) {
		fmt.Fprintln(out, result.Line{
			Key:   result.Key{Workload: workloadName, Config: config, Subject: subjectName},
			Procs: runtime.GOMAXPROCS(0), N: n,
			Values: append(values, result.Value{Value: float64(timers), Unit: workload.TimersUnit}),
		})
	})
	return nil
}
