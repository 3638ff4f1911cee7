package growth

import (
	"math/rand/v2"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// tick is that of the wheel, and so the least that the simulation can tell apart.
const tick = time.Microsecond

// simulation is a queue in virtual time. Everything runs inline on the one goroutine that
// advances the wheel.
type simulation struct {
	model
	wheel      *timingwheel.TimingWheel
	random     *rand.Rand // of a fixed seed, so that the same flags give the same table
	partitions []*partition

	late            []time.Duration // of the jobs that have begun
	writes, commits int             // that have begun
}

// result is what was measured after a second in which the queue has filled.
type result struct {
	late      []time.Duration // by how much each job has begun after it was due
	perCommit float64         // the mean number of writes in a commit
}

// warmUp is the longest time from a job's Add to when it is due: after so long all kinds
// of writes are as frequent as they will be.
const warmUp = time.Second

// simulate adds so many jobs in each second to a queue of so many partitions.
func (m model) simulate(partitions, jobs int, length time.Duration) result {
	s := m.newSimulation(partitions)
	defer s.wheel.Stop()
	s.addForEver(jobs)
	s.wheel.Advance(warmUp)
	s.late, s.writes, s.commits = nil, 0, 0
	s.wheel.Advance(length)
	return result{s.late, float64(s.writes) / float64(s.commits)}
}

func (m model) newSimulation(partitions int) *simulation {
	s := &simulation{model: m, random: rand.New(rand.NewPCG(1, 2))}
	s.wheel = timingwheel.New(timingwheel.WithManualClock(time.Unix(0, 0)), timingwheel.WithTick(tick),
		timingwheel.WithWheelSize(4096), timingwheel.WithShards(1), timingwheel.WithExecutor(timingwheel.Inline()))
	for range partitions {
		s.partitions = append(s.partitions, &partition{simulation: s})
	}
	return s
}

// after calls f when d has passed.
func (s *simulation) after(d time.Duration, f func()) {
	if _, err := s.wheel.Schedule(d, f); err != nil {
		panic(err) // the wheel is neither stopped nor full
	}
}

// some returns a random number of ticks below d.
func (s *simulation) some(d time.Duration) time.Duration {
	return time.Duration(s.random.Int64N(int64(d/tick))) * tick
}

// addForEver adds jobs, at random times and to random partitions. It does so for a short
// while ahead, and then for the next, so that few of them are in memory.
func (s *simulation) addForEver(jobs int) {
	const step = 10 * time.Millisecond
	for range int(float64(jobs) * step.Seconds()) {
		p := s.partitions[s.random.IntN(len(s.partitions))]
		s.after(s.some(step), func() { p.add(2*s.ahead + s.some(warmUp-2*s.ahead)) })
	}
	s.after(step, func() { s.addForEver(jobs) })
}
