package workload

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
	"github.com/tickwheel/tickwheel/benchmarks/internal/result"
	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
)

// sessions are the timeouts of connections as time goes by: pushed back with all traffic,
// and due where that ends. Unlike connections, it has in it what a push leaves to be done
// later.
func sessions(size Size) Workload {
	l := sessionLoad{
		sessions: pick(size, 10_000, 10_000, 100),
		rate:     pick(size, 200_000, 200_000, 10_000),
		timeout:  pick(size, time.Second, 500*time.Millisecond, 20*time.Millisecond),
		cycle:    pick(size, 10*time.Second, 5*time.Second, 200*time.Millisecond),
		spell:    pick(size, 3*time.Second, time.Second, 100*time.Millisecond),
	}
	const config = "load=steady"
	return Workload{
		Name:  "Sessions",
		Title: "Connections that are pushed back, and some that expire",
		Shows: fmt.Sprintf("%s connections have an idle timeout of %v. For %v, begun when the first timeouts "+
			"have passed, one goroutine pushes them back, %s times a second at random, in a batch for each "+
			"millisecond. Each connection falls silent once in %v for one and a half timeouts, so that it "+
			"expires, and is opened anew after that. CPU is the process's for each push, with all that the "+
			"pushes leave for later and all that expires; net is without the generator's share, the row of "+
			"the subject none. Switches are voluntary ones, a second: a thread that went to sleep. Who has "+
			"no Reset cancels and adds.", Count(l.sessions), l.timeout, l.spell, Count(l.rate), l.cycle),
		Rounds: pick(size, 3, 1, 1),
		Share:  pick(size, 70*time.Second, 14*time.Second, time.Second),
		Cases: []Case{{
			Name: config, Configs: []string{config},
			Timeout: l.spell + 20*time.Second,
			Without: func(s subject.Subject) string {
				if s.BearsOften(l.sessions) <= 1000 {
					return "so many pushes a second are more than it bears: " + s.Why
				}
				return loaded(s)
			},
			Run: func(s subject.Subject, emit Emit) { l.run(s, config, emit) },
		}},
		Tables: []Table{{
			Caption: fmt.Sprintf("%s connections, %s pushes a second", Count(l.sessions), Count(l.rate)),
			Columns: []Column{
				{Head: "CPU ns a push, net (ratio)", Config: config, Unit: "cpu-ns/push", Ratio: true, Net: true},
				{Head: "gross (ratio)", Config: config, Unit: "cpu-ns/push", Ratio: true},
				{Head: "switches/s", Config: config, Unit: "switches/s"},
				{Head: "expired/s", Config: config, Unit: "expired/s"},
			},
		}},
		Headlines: []Headline{{
			Work:    Count(l.sessions) + " connections, " + Count(l.rate) + " pushes a second: CPU of a push, net",
			Subject: "wheel.AfterFunc", Config: config, Unit: "cpu-ns/push", Net: true,
		}},
	}
}

// sessionLoad says what is done, and when, by the clock of a plan that is the same for
// every subject.
type sessionLoad struct {
	sessions, rate        int
	timeout, cycle, spell time.Duration
}

func (l sessionLoad) silence() time.Duration { return l.timeout * 3 / 2 }

// silent reports whether a connection has no traffic at a time of the plan. They fall
// silent one after the other, the last first.
func (l sessionLoad) silent(i int, at time.Duration) bool {
	return (at+l.cycle*time.Duration(i)/time.Duration(l.sessions))%l.cycle < l.silence()
}

// reopened returns the k-th connection whose silence ends.
func (l sessionLoad) reopened(k int) int {
	n := l.sessions
	first := int(int64(n) * int64(l.silence()) / int64(l.cycle))
	return ((first-k)%n + n) % n
}

// reopenings returns how many have ended their silence up to a time of the plan.
func (l sessionLoad) reopenings(at time.Duration) int {
	return int(int64(l.sessions) * int64(at) / int64(l.cycle))
}

func (l sessionLoad) run(s subject.Subject, config string, emit Emit) {
	t := s.New(subject.Options{})
	var expired atomic.Int64
	expire := func() { expired.Add(1) }
	open := func(i int) { t.Set(i, l.timeout, expire) }
	push := func(i int) { t.Cancel(i); open(i) }
	if t.CanReset() {
		push = func(i int) { t.Reset(i, l.timeout) }
	}
	t.Keep(l.sessions)
	for i := range l.sessions {
		open(i)
	}
	measure.Settle()
	begin, r := time.Now(), seeded(l.rate)
	d := sessionDriver{sessionLoad: l, begin: begin, random: r, push: push, reopen: func(i int) { t.Cancel(i); open(i) }}
	d.until(l.silence()) // the first have expired
	before, pushes, early := measure.CPU(), d.pushes, expired.Load()
	d.until(l.silence() + l.spell)
	after := measure.CPU()
	n, ended, seconds := d.pushes-pushes, expired.Load()-early, after.Time.Sub(before.Time).Seconds()
	if late := after.Time.Sub(begin) - l.silence() - l.spell; late > l.spell/2 {
		tooSlow("it has ended %v late", late)
	}
	emit(config, n, l.sessions,
		result.Value{Value: ns(after.CPU-before.CPU, n), Unit: "cpu-ns/push"},
		result.Value{Value: float64(after.Voluntary-before.Voluntary) / seconds, Unit: "switches/s"},
		result.Value{Value: float64(ended) / seconds, Unit: "expired/s"})
	runtime.KeepAlive(t)
}

// sessionDriver carries the plan out.
type sessionDriver struct {
	sessionLoad
	begin        time.Time
	random       *rand.Rand
	push, reopen func(i int)
	steps        int // of the plan: a push, or none where the connection is silent
	pushes       int
	reopens      int
}

// until goes on up to a time of the plan.
func (d *sessionDriver) until(end time.Duration) {
	for {
		now := min(time.Since(d.begin), end)
		for steps := int(int64(d.rate) * int64(now) / int64(time.Second)); d.steps < steps; d.steps++ {
			at := time.Duration(d.steps) * time.Second / time.Duration(d.rate)
			if i := d.random.IntN(d.sessions); !d.silent(i, at) {
				d.push(i)
				d.pushes++
			}
		}
		for reopens := d.reopenings(now); d.reopens < reopens; d.reopens++ {
			d.reopen(d.reopened(d.reopens))
		}
		if now == end {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
