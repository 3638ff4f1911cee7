//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tickwheel/tickwheel/durable/testservers/pgserver"
)

// The test is the processes that it kills, too, when it is told to be.
func TestMain(m *testing.M) {
	if os.Getenv(envSpec) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// Each fault for some seconds, few at once: a machine that is too busy accepts too little.
// `make chaos` has them for as long as one likes.
func TestFaults(t *testing.T) { runShort(t, short, false) }

// Some of these may not be late by the lease because the machine is busy.
func TestPostgresFaults(t *testing.T) {
	pgserver.Test(t).Stop() // or it is skipped
	set := short
	set.far = 4 * time.Second // there is no cascade to wait for
	runShort(t, set, true)
}

// What happens in these faults happens in others, too: to servers in those with edits, and to workers in those
// with schedules. The short form of each has the ledgers of the same jobs.
var inOthers = []string{"server", "pg-server", "embedded", "cluster", "worker", "pg-worker"}

// These show in half a minute only. Those with power cuts need root, too.
var long = []string{
	"power", "embedded-power", "cluster-power", "cluster-power-all", "power-control", "pg-power", "pg-power-control",
	"cluster-cut-off", "pushed", "pg-pushed", "embedded-pushed", "cluster-pushed", "older", "pg-older", "pg-held",
}

// atOnce has a slot for each fault that happens at one time.
var atOnce = make(chan struct{}, 6)

// runShort runs the faults of PostgreSQL, or the others, beside one another.
func runShort(t *testing.T, set settings, postgres bool) {
	t.Parallel()
	var all group // rather than t.Parallel, which has two at once on two processors
	defer all.wait()
	for _, f := range faultsOf(postgres) {
		if slices.Contains(inOthers, f.name) || slices.Contains(long, f.name) {
			continue
		}
		atOnce <- struct{}{}
		all.run(func() {
			defer func() { <-atOnce }()
			t.Run(f.name, func(t *testing.T) {
				r, err := f.harm(t.TempDir(), set)
				if errors.Is(err, errors.ErrUnsupported) {
					t.Skip(err)
				}
				t.Log(r)
				if err == nil {
					err = r.check()
				}
				if err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

var short = settings{length: 6 * time.Second, rate: 60, near: 2 * time.Second, far: 12 * time.Second, brief: true}

// Early is what is due later than by all settings of the clock of the last seconds.
func TestClock(t *testing.T) {
	var c clockSettings
	now := time.Now()
	if !c.isEarly(now, now.Add(time.Minute)) || c.isEarly(now, now) {
		t.Fatal("a clock that was never set")
	}
	for _, set := range []struct {
		ago   time.Duration
		shift time.Duration
	}{{time.Hour, 5 * time.Hour}, {time.Minute, 2 * time.Hour}, {time.Second, time.Hour}, {time.Millisecond, -time.Hour}, {-time.Second, 9 * time.Hour}} {
		c = append(c, setting{now.Add(-set.ago), set.shift})
	}
	if most := c.most(now); most != 2*time.Hour {
		t.Fatal(most)
	}
	if !c.isEarly(now, now.Add(3*time.Hour)) || c.isEarly(now, now.Add(2*time.Hour-time.Second)) {
		t.Fatal("it is early after the highest of the last seconds, and only then")
	}
}

// What the audit counts, it finds.
func TestAudit(t *testing.T) {
	dir := t.TempDir()
	lines := map[string]string{
		"ledger-1": "A ok 1\nA lost 1\nA canceled 1\nc canceled 2\nC canceled 3\nA both 1\nc both 2\nC both 3\nA maybe 1\nc maybe 1\nA no 1\nc no 1\nN no 1\n",
		"ledger-2": "R ok 2\nD ok 3\nR both 1\nD both 2\nR twice 1\nD twice 2\nR twice|3600000000004 3\nA twice 1\nR stray 2\nW none 1\nR",
		"ledger-5": "K 3600000000000 0\nA shifted 1\nR shifted|3600000000003 3\nD shifted 4\n",
		"ledger-3": "A failed 1\nc failed 2\nU failed 3\nA forgotten 1\nc forgotten 2\nE end 3\n",
		// One that has failed may be canceled, and then no attempt begins; one that began and
		// has no end is lost, and so is one that is dead and not listed.
		"ledger-4": "A again 1\nR again 2\nF again 3\nC again 4\nA late 1\nR late 2\nF late 3\nC late 4\nR late 2000000004\n" +
			"A running 1\nR running 2\nC running 3\nF running 4\nA begun 1\nR begun 2\nA dead 1\nR dead 2\nF dead 3\nL dead 9\nA buried 1\nR buried 2\nF buried 3\n",
	}
	for name, text := range lines {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := audit(dir)
	a.LostRefs = nil
	want := account{Accepted: 16, Canceled: 5, Ran: 11, Attempts: 13, Uncertain: 2, Twice: 1, Stray: 1,
		Broken: promises{Lost: 5, CanceledAndRan: 3, Early: 1, Wrong: 1}}
	if fmt.Sprintf("%+v", a) != fmt.Sprintf("%+v", want) {
		t.Fatalf("%+v, not %+v", a, want)
	}
}

// A result fails if any promise was broken, and if it proves nothing.
func TestAuditResult(t *testing.T) {
	good := result{account: account{Accepted: 1000, Schedules: 2, Occurrences: 2, LimitsRemoved: true, Pauses: 1, Cooldowns: 1, Bouts: 1, Permits: 2, Twice: 10, Rejected: 10,
		Signaled: 1, SignalRefused: 1, Keys: 1}, Happened: 1, expected: expected{twice: 0.01, rejected: 0.01, schedules: 2, limits: true}}
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	bad := map[string]func(*result){
		"lost": func(r *result) { r.Broken.Lost = 1 }, "unseen": func(r *result) { r.Broken.Unseen = 1 }, "died": func(r *result) { r.Broken.Died = 1 },
		"no job": func(r *result) { r.Accepted = 0 }, "nothing": func(r *result) { r.Happened = 0 },
		"schedules": func(r *result) { r.Schedules = 1 }, "occurrences": func(r *result) { r.Occurrences = 1 },
		"removed": func(r *result) { r.LimitsRemoved = false }, "pauses": func(r *result) { r.Pauses = 0 }, "cooldowns": func(r *result) { r.Cooldowns = 0 }, "alone": func(r *result) { r.Permits = 1 },
		"signals": func(r *result) { r.SignalRefused = 0 }, "twice": func(r *result) { r.Twice = 11 }, "rejected": func(r *result) { r.Rejected = 11 },
	}
	for name, spoil := range bad {
		r := good
		if spoil(&r); r.check() == nil {
			t.Error(name)
		}
	}
	brief := good
	brief.brief, brief.Permits, brief.Signaled, brief.Twice, brief.Rejected = true, 1, 0, 100, 100
	if err := brief.check(); err != nil {
		t.Fatal(err)
	}
}

// What is wrong with limits is counted, and what a worker had when it was cut off counts for
// as long as its lease.
func TestAuditLimits(t *testing.T) {
	at := func(s float64) time.Time { return time.Unix(1000, 0).Add(time.Duration(s * float64(time.Second))) }
	var b book
	add := func(by string, what rune, text string, s float64) { b.add(by, what, text, at(s)) }
	add("ruler", limitsHold, "all", 0)
	for _, by := range []string{"dead", "w"} {
		add(by, renewed, fmt.Sprint(at(1).UnixNano()), 1)
	}
	add("w", renewed, fmt.Sprint(at(4).UnixNano()), 4)
	add("dead", boutBegan, capped+"|a|1/1", 2) // until 5
	add("w", boutBegan, capped+"|a|2/1", 4.5)
	add("w", boutEnded, "2/1", 4.6)
	add("w", boutBegan, capped+"|a|3/1", 5.1)
	add("w", boutEnded, "3/1", 5.2)
	add("w", boutBegan, capped+"|b|4/1", 5.15)
	add("w", boutEnded, "4/1", 5.3)
	add("dead", boutBegan, capped+"|a|5/1", 5.15) // without a lease
	add("ruler", paused, paced+"|", 5)
	for i := range 2 * (burst + 2*perSecond) {
		add("w", boutBegan, fmt.Sprint(paced, "|c|", 10+i, "/1"), 6+float64(i)/1000)
	}
	add("w", boutBegan, paced+"|c|6/1", 7.5)
	add("ruler", resumed, paced+"|", 7.8)
	add("w", boutBegan, paced+"|c|7/1", 7.9)
	add("ruler", limitsEnd, "all", 8)
	add("w", boutBegan, capped+"|a|8/1", 8.1)
	want := account{Bouts: 6 + 2*(burst+2*perSecond), Permits: 2, Lane: 2, Pauses: 1, LimitsRemoved: true,
		Broken: promises{Excess: burst + 2*perSecond, PausedAndRan: 1}}
	var got account
	if b.settle(&got); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%+v, not %+v", got, want)
	}
	for i := range 2 * permits { // beside two
		add("w", boutBegan, fmt.Sprint(capped, "|", i/(perLane+1), "|", i, "/2"), 4.2)
	}
	got = account{}
	if b.settle(&got); got.Broken.TooMany != permits+2+1 {
		t.Fatalf("%+v", got)
	}
}

// A signal that was answered is seen by the next attempt or by none, and the last value of a key by
// some run.
func TestAuditKeys(t *testing.T) {
	dir := t.TempDir()
	lines := `g ok|0 1;Y ok|0 2;a ok|1|0 3;a ok|2|0 4;R ok 3;R ok 4
g stale|0 1;Y stale|0 4;a stale|2|none 3;a stale|1|none 5;a stale|3|0 6
g never|0 1;Y never|0 2
g skipped|0 1;Y skipped|0 2;a skipped|1|none 3;a skipped|2|0 4
g once|0 1;Y once|0 2;a once|1|0 3;a once|2|none 4
g over|0 1;n over|0 2;a over|1|0 3
g deadline|0 2;n deadline|0 3;a deadline|1|none 1
g second|0 1;Y second|0 2;g second|1 1;n second|1 3;a second|1|0 3
g both|0 1;Y both|0 2;g both|1 1;Y both|1 3;a both|1|0 4
g maybe|0 1;u maybe|0 2;a maybe|1|none 3
g killed|0 1;a killed|1|0 3
g gone|0 1;Y gone|0 2;c gone 3;C gone 4
v k|1|k0 1;v k|2|k1 2;w k|2 3
v late|1|l0 1;w late|6 3
v unseen|1|u0 1;v unseen|2|u1 2;w unseen|1 3
v canceled|1|c0 1;C c0 2
A u0 1;A u1 1
P s|5000|1000 1;O s|2000|r1 2;O s|2000|r2 2;O s|4000|r3 3`
	if err := os.WriteFile(dir+"/ledger-1", []byte(strings.ReplaceAll(lines, ";", "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	a := audit(dir)
	want := account{Accepted: 2, Canceled: 2, Ran: 1, Attempts: 2, Stray: 1, Schedules: 1, Occurrences: 2, Signaled: 9, SignalRefused: 3, SignalUnknown: 2, Values: 6, Keys: 4,
		Broken: promises{Unheard: 4, Overheard: 1, Unseen: 1, Missing: 1, Doubled: 1}, LostRefs: []string{"s"}}
	if fmt.Sprintf("%+v", a) != fmt.Sprintf("%+v", want) {
		t.Fatalf("%+v, not %+v", a, want)
	}
}

// A key that does not run within its MaxWait is found, and so is an older value that begins last.
func TestAuditPushes(t *testing.T) {
	at := func(s float64) int64 { return int64(s * float64(time.Second)) }
	var lines []string
	line := func(what rune, text string, s float64) {
		lines = append(lines, fmt.Sprintf("%c %s %d", what, text, at(s)))
	}
	for i := range 20 { // "ok" runs each 2.5 s, "starved" only once, at 10 s
		line(pushed, fmt.Sprintf("ok|%d|%d", i, maxWait), float64(i))
		line(pushed, fmt.Sprintf("starved|%d|%d", i, maxWait), float64(i))
	}
	for i := range 8 {
		line(pushSeen, fmt.Sprintf("ok|%d", 2*i), 2.5*float64(i))
	}
	line(pushSeen, "ok|19", 20)
	line(pushSeen, "starved|10", 10)
	line(pushSeen, "starved|19", 20)
	for key, values := range map[string][]int{"right": {1, 2}, "older": {2, 1}, "both": {1, 2, 1}, "never": {1}} {
		line(pushed, key+"|1|0", 0)
		line(pushed, key+"|2|0", 1)
		for i, value := range values {
			line(pushSeen, fmt.Sprintf("%s|%d", key, value), 2*float64(i))
		}
	}
	line(watchBegan, "all", 0)
	line(began, fmt.Sprintf("late|%d", at(1)), 12)
	line(began, fmt.Sprintf("early|%d", at(20)), 40)
	line(watchEnded, "all", 19)
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/ledger-1", []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	a := audit(dir)
	got := []any{a.Pushed, a.PushRuns, a.Broken.Older, a.Broken.Starved, a.Late, a.LateByFar}
	if want := []any{48, 19, 3, 0, 11 * time.Second, 1}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%v, not %v", got, want) // so busy a machine excuses a gap of ten seconds
	}
	quick := slices.DeleteFunc(lines, func(l string) bool { return strings.Contains(l, "late|") })
	if err := os.WriteFile(dir+"/ledger-1", []byte(strings.Join(quick, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	if a = audit(dir); a.Broken.Starved != 1 || a.Gap != 10*time.Second {
		t.Fatalf("%+v", a)
	}
}

// An answer about a key that was right at no moment of its call is found, and no other.
func TestAuditShared(t *testing.T) {
	at := func(s float64) int64 { return int64(s * float64(time.Second)) }
	var lines []string
	call := func(from, to float64, key, op, answer, ref, found string, due float64) {
		lines = append(lines, fmt.Sprintf("%c %s|%s|%s|%s|%s|%d|%d %d", shared, key, op, answer, ref, found, at(from), at(due), at(to)))
	}
	for _, key := range []string{"right", "wrong"} {
		one, two := key+"1", key+"2"
		call(1, 2, key, "keep", yes, one, "", 30)
		call(3, 4, key, onCancel, yes, one, "", 0)
		call(10, 11, key, "refuse", yes, two, "", 30)
		lines = append(lines, fmt.Sprintf("%c %s|%d %d", began, two, at(30), at(31)))
	}
	call(2.5, 3.5, "right", "keep", yes, "right1", "right1", 9)
	call(2.5, 3.5, "right", "refuse", no, "", "", 9)
	call(3.5, 3.6, "right", onSignal, no, "", "", 0)
	call(5, 10.5, "right", onLookup, no, "", "", 0)
	call(12, 13, "right", "keep", yes, "right2", "right2", 20)
	call(29.5, 30, "right", onCancel, no, "right2", "", 0)
	call(15, 16, "right", onLookup, yes, "right1", "", 0)

	call(5, 6, "wrong", "keep", yes, "wrong1", "wrong1", 9)
	call(5, 6, "wrong", "refuse", no, "", "", 9)
	call(2.5, 2.9, "wrong", onSignal, no, "", "", 0)
	call(12, 13, "wrong", onLookup, no, "", "", 0)
	call(12, 13, "wrong", onCancel, no, "wrong2", "", 0)
	call(32, 33, "wrong", "keep", yes, "wrong2", "wrong2", 40)
	call(25, 26, "wrong", onLookup, yes, "wrong1", "", 0)
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/ledger-1", []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := audit(dir)
	for _, one := range a.LostRefs {
		if strings.Contains(one, "right") {
			t.Error(one)
		}
	}
	if a.Broken.Deposed != 7 || a.Broken.Lost != 0 {
		t.Fatalf("%+v", a)
	}
}

// What is measured beside other queues runs in little: each stores its jobs, and runs all of them once.
func TestBeside(t *testing.T) {
	t.Parallel()
	pgserver.Test(t) // or it is skipped
	*length, *rate, *rounds, *backlog, *pending = 300*time.Millisecond, 50, 1, 2000, 1000
	for _, s := range besides() {
		t.Run(s.name, func(t *testing.T) {
			if err := attempt(s.run); err != nil {
				t.Fatal(err)
			}
		})
	}
}
