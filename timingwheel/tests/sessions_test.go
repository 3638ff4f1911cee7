//go:build unix

package timingwheel_test

import (
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// BenchmarkSessions holds 300,000 sessions in a map, each with its expiry, which accesses
// at random push back. It prints what the expiry adds to the memory of a session, how much
// processor time one garbage collection takes, the sessions included, and how long an
// access does.
func BenchmarkSessions(b *testing.B) {
	ids := make([]string, population)
	for i := range ids {
		ids[i] = "session-" + strconv.Itoa(i)
	}
	for _, kind := range []struct {
		name string
		make func(w *timingwheel.TimingWheel) sessionStore
	}{
		{"none", func(*timingwheel.TimingWheel) sessionStore { return make(plainSessions) }},
		{"time.AfterFunc", func(*timingwheel.TimingWheel) sessionStore { return make(timeSessions) }},
		{"AfterFunc", func(w *timingwheel.TimingWheel) sessionStore { return timerSessions{w, map[string]*timerSession{}} }},
		{"Schedule", func(w *timingwheel.TimingWheel) sessionStore { return timeoutSessions{w, map[string]*timeoutSession{}} }},
		{"Keyed", func(w *timingwheel.TimingWheel) sessionStore {
			return keyedSessions{timingwheel.NewKeyed[string](w), make(plainSessions)}
		}},
	} {
		b.Run(kind.name, func(b *testing.B) {
			var bytes, gc, access float64
			for b.Loop() {
				w := timingwheel.New()
				base := collected()
				s := kind.make(w)
				for _, id := range ids {
					s.open(id)
				}
				start := time.Now()
				for range population {
					s.access(ids[rand.IntN(population)])
				}
				access += float64(time.Since(start).Nanoseconds()) / population
				bytes += float64(collected()-base) / population
				gc += shortestGC()
				runtime.KeepAlive(s)
				w.Stop()
			}
			n := float64(b.N)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(bytes/n, "B/session")
			b.ReportMetric(gc/n, "gc-cpu-ms")
			b.ReportMetric(access/n, "ns/access")
		})
	}
}

const (
	population = 300_000
	expiry     = 30 * time.Minute
)

func collected() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// shortestGC returns the processor time of the shortest of some collections, in milliseconds.
func shortestGC() float64 {
	shortest := math.Inf(1)
	for range 8 {
		before := cpuSeconds()
		runtime.GC()
		shortest = min(shortest, cpuSeconds()-before)
	}
	return shortest * 1000
}

// cpuSeconds returns the processor time that the process has taken.
func cpuSeconds() float64 {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

type sessionStore interface {
	open(id string)
	access(id string)
}

type session struct {
	id   string
	user [4]uint64
}

type plainSessions map[string]*session

func (s plainSessions) open(id string)   { s[id] = &session{id: id} }
func (s plainSessions) access(id string) { s[id].user[0]++ }

type timeSession struct {
	session
	timer *time.Timer
}

type timeSessions map[string]*timeSession

func (s timeSessions) open(id string) {
	s[id] = &timeSession{session{id: id}, time.AfterFunc(expiry, func() { delete(s, id) })}
}

func (s timeSessions) access(id string) { s[id].timer.Reset(expiry) }

type timerSession struct {
	session
	timer *timingwheel.Timer
}

type timerSessions struct {
	w *timingwheel.TimingWheel
	m map[string]*timerSession
}

func (s timerSessions) open(id string) {
	s.m[id] = &timerSession{session{id: id}, s.w.AfterFunc(expiry, func() { delete(s.m, id) })}
}

func (s timerSessions) access(id string) { s.m[id].timer.Reset(expiry) }

type timeoutSession struct {
	session
	timeout timingwheel.Timeout
}

type timeoutSessions struct {
	w *timingwheel.TimingWheel
	m map[string]*timeoutSession
}

func (s timeoutSessions) open(id string) {
	timeout, _ := s.w.Schedule(expiry, func() { delete(s.m, id) })
	s.m[id] = &timeoutSession{session{id: id}, timeout}
}

func (s timeoutSessions) access(id string) { s.m[id].timeout.Reset(expiry) }

type keyedSessions struct {
	keyed *timingwheel.Keyed[string]
	plain plainSessions
}

func (s keyedSessions) open(id string) {
	s.plain.open(id)
	s.keyed.Schedule(id, expiry, func() { delete(s.plain, id) })
}

func (s keyedSessions) access(id string) { s.keyed.Reset(id, expiry) }
