// Package enginetest has the tests that every engine of package durable must pass, and
// [Memory], the simplest engine to run them on.
//
//	func TestEngine(t *testing.T) { enginetest.Run(t, newStore) }
//
// Most of the tests run in parallel, each on a store of its own, and in real time except
// for [RunInBubbles]. The environment variable ENGINETEST_RACES sets how many races
// between Cancel and Claim are run, by default 200, and ENGINETEST_OVERDUE how many jobs
// are overdue when a worker starts, by default 1000.
package enginetest

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/memory"
)

// Store is where an engine keeps jobs: a server, a directory, a schema of a database.
type Store interface {
	// Open returns an engine on the store, as another process would have it. The store
	// closes it at the end of the test, if the test has not.
	Open(t testing.TB) driver.Engine

	// Restart ends what serves the store as a crash does, and starts it again. Engines
	// that were open before need not be usable after.
	Restart(t testing.TB)
}

// A PutBacker is a Store that can be put back to an earlier state while engines are open on it
// and workers live, as by a failover to a standby that lags. Stores that cannot are not tested
// for it.
type PutBacker interface {
	Store

	// Save returns a function that puts the store back to how it is now.
	Save(t testing.TB) (putBack func())
}

// Memory is a Store of package memory, by the time that passes.
type Memory struct{ store *memory.Store }

// NewMemory returns an empty Memory.
func NewMemory() *Memory { return &Memory{memory.New(nil)} }

// Open returns an engine on the Memory.
func (m *Memory) Open(testing.TB) driver.Engine { return m.store.Open() }

// Restart does what the restart of a server would.
func (m *Memory) Restart(testing.TB) { m.store.Restart() }

// Save returns a function that puts the Memory back to how it is now.
func (m *Memory) Save(testing.TB) func() { return m.store.Save() }

// Run runs all tests on stores that newStore makes; each is empty, and its test's alone.
func Run(t *testing.T, newStore func(t testing.TB) Store) { RunOnly(t, newStore) }

// RunOnly runs the tests of these names, or all without a name. Tests of one process,
// such as "Restart", suit a store that only one engine can have open.
func RunOnly(t *testing.T, newStore func(t testing.TB) Store, names ...string) {
	runAll(t, func(t *testing.T, f func(*testing.T, Store)) { f(t, newStore(t)) }, names...)
}

// RunInBubbles runs all tests on stores that need no file and no connection, each in a bubble
// of testing/synctest. There, time passes when all goroutines wait: a test that takes a minute
// takes as long as its work, and a busy machine is as good as any.
func RunInBubbles(t *testing.T, newStore func(t testing.TB) Store) {
	runAll(t, func(t *testing.T, f func(*testing.T, Store)) {
		if slices.ContainsFunc(realTime, func(name string) bool { return strings.HasSuffix(t.Name(), "/"+name) }) {
			f(t, newStore(t))
			return
		}
		synctest.Test(t, func(t *testing.T) { f(t, newStore(t)) })
	})
}

// realTime is the tests that are of no use in a bubble: two need claims that take a while, and in
// one a commit is held up, where no time passes since others wait for its lock.
var realTime = []string{"Backlog", "KindAtItsLimit", "ScheduleEditedLate"}

func runAll(t *testing.T, run func(*testing.T, func(*testing.T, Store)), names ...string) {
	// Most of their time the tests wait, so more of them run at once than t.Parallel has
	// where there are few processors.
	for _, name := range names {
		require.True(t, slices.ContainsFunc(cases, func(c testCase) bool { return c.name == name }), "there is no test %s", name)
	}
	var wg sync.WaitGroup
	turns := make(chan struct{}, 5)
	for _, c := range cases {
		if len(names) > 0 && !slices.Contains(names, c.name) {
			continue
		}
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			t.Run(c.name, func(t *testing.T) { run(t, c.run) })
		})
		if c.name == "Ahead" { // alone, since it is about time
			wg.Wait()
		}
	}
	wg.Wait()
}

type testCase struct {
	name string
	run  func(t *testing.T, s Store)
}

var cases = []testCase{
	{"Ahead", ahead}, // the first, before others run

	{"InsertRunGone", insertRunGone}, {"Batch", batch}, {"RepeatedInsert", repeatedInsert}, {"LateInsert", lateInsert},
	{"BadInput", badInput}, {"Names", names}, {"BadNames", badNames}, {"UnknownRef", unknownRef}, {"Ended", ended}, {"Restart", restart}, {"Grace", grace},
	{"Silence", silence}, {"HalfOpen", halfOpen}, {"Fields", fields}, {"Largest", largest}, {"ImpossibleTexts", impossibleTexts},
	{"Expires", expires}, {"Snooze", snooze},

	{"List", list}, {"ListMoving", listMoving}, {"Pages", pages}, {"PagesOfStates", pagesOfStates}, {"Backlog", backlog}, {"Workers", workers}, {"Why", why}, {"UntilIdle", untilIdle}, {"Await", awaitEnd}, {"AwaitChanged", awaitChanged}, {"AwaitEdges", awaitEdges}, {"AwaitRetained", awaitRetained}, {"AwaitOtherEnds", awaitOtherEnds},

	{"Keys", keys}, {"KeyRace", keyRace}, {"KeyTurns", keyTurns}, {"OnKey", onKey},
	{"PushedBack", pushedBack}, {"PushedBackAfterFailure", pushedBackAfterFailure}, {"FreeWhenBegun", freeWhenBegun}, {"Signal", signal}, {"SignalAfterStep", signalAfterStep},
	{"ReplaceAgainstClaim", replaceAgainstClaim}, {"SignalAgainstDeadline", signalAgainstDeadline}, {"LastValue", lastValue},
	{"KeyLeftByTheDead", keyLeftByTheDead}, {"KeyAfterGrace", keyAfterGrace}, {"KeyAfterRelease", keyAfterRelease},
	{"ExpiredHolder", expiredHolder}, {"SignalReplaced", signalReplaced}, {"SignalReplacedAfterFailure", signalReplacedAfterFailure}, {"NewerStays", newerStays}, {"NewerStaysAfterGrace", newerStaysAfterGrace}, {"NewerAfterTakeover", newerAfterTakeover},
	{"KeyAfterReleaseOfTwo", keyAfterReleaseOfTwo}, {"KeyReplacedByMany", keyReplacedByMany},
	{"AddedWithoutPause", addedWithoutPause}, {"DueKeepsItsTurn", dueKeepsItsTurn}, {"DueTakesManyValues", dueTakesManyValues},
	{"DueKeepsItsTurnInOneCall", dueKeepsItsTurnInOneCall}, {"DueLeavesItsLane", dueLeavesItsLane}, {"DueTakesTheLast", dueTakesTheLast},

	{"Cancel", cancel}, {"ChangeRetry", changeRetry}, {"CancelAgainstClaim", cancelAgainstClaim}, {"CancelOnTheWay", cancelOnTheWay},
	{"Reschedule", reschedule}, {"MoveAgainstClaim", moveAgainstClaim}, {"MoveWhileFetched", moveWhileFetched},

	{"Retries", retries}, {"Errors", failures}, {"JSON", jsonPayload},
	{"Redrive", redrive}, {"RedriveCancel", redriveCancel}, {"Delete", deleteDead}, {"DeleteAgainstRedrive", deleteAgainstRedrive},
	{"Retention", retention}, {"Times", extremeTimes}, {"ScheduleTimes", scheduleTimes}, {"LongDurations", longDurations},
	{"HandlerWrites", handlerWrites}, {"HandlerWritesOccurrence", handlerWritesOccurrence},

	{"Deaths", deaths}, {"Cleared", cleared}, {"SuspectMoved", suspectMoved}, {"ClaimAnswerLost", claimAnswerLost}, {"Killer", killer},
	{"BeatAfterLease", beatAfterLease}, {"LeaseLostWaiting", leaseLostWaiting}, {"Frozen", frozen}, {"LongHandler", longHandler},
	{"LeaseLost", leaseLost}, {"StaleClaim", staleClaim},
	{"PutBack", putBack}, {"PutBackLimits", putBackLimits}, {"PutBackSchedule", putBackSchedule}, {"PutBackClaims", putBackClaims},
	{"ClaimsOnTheWay", claimsOnTheWay},

	{"TwoWorkers", twoWorkers}, {"Drain", drain}, {"Concurrency", concurrency}, {"HandedOwn", handedOwn}, {"Shut", shut}, {"ManyShut", manyShut},
	{"Unhandled", unhandled}, {"RollingDeploy", rollingDeploy}, {"KindAtItsLimit", kindAtItsLimit}, {"ManyLimits", manyLimits},
	{"Overdue", overdue}, {"NeverEarly", neverEarly}, {"Accounts", accounts},

	{"ScheduleShared", scheduleShared}, {"ScheduleFailed", scheduleFailed}, {"ScheduleAgain", scheduleAgain},
	{"ScheduleChanged", scheduleChanged}, {"SchedulePaused", schedulePaused}, {"ScheduleMissed", scheduleMissed}, {"ScheduleSkipFailed", scheduleSkipFailed},
	{"ScheduleOverlap", scheduleOverlap}, {"ScheduleEditedWaiting", scheduleEditedWaiting},
	{"ScheduleEditedMissed", scheduleEditedMissed}, {"ScheduleEditedLate", scheduleEditedLate}, {"ScheduleRedriven", scheduleRedriven},
	{"ScheduleClockAhead", scheduleClockAhead},
	{"ScheduleListed", scheduleListed}, {"ScheduleSpan", scheduleSpan}, {"ScheduleOfAnother", scheduleOfAnother},
	{"BadSchedule", badSchedule}, {"ScheduleRaces", scheduleRaces},

	{"LimitClaims", limitClaims}, {"FlowControlStored", flowControlStored}, {"Confirms", confirms}, {"BadLimits", badLimits}, {"LimitRunning", limitRunning},
	{"LimitPerLane", limitPerLane}, {"LimitRate", limitRate}, {"Pauses", pauses}, {"PausedTwice", pausedTwice},
	{"Retain", retain}, {"RetainCancel", retainCancel}, {"RetainKey", retainKey}, {"RetainSchedule", retainSchedule}, {"RetainAtomic", retainAtomic}, {"RetainOver", retainOver}, {"RetainFilled", retainFilled}, {"RetainRedriven", retainRedriven}, {"RetainTakenOver", retainTakenOver}, {"RetainSuperseded", retainSuperseded}, {"RetainChanged", retainChanged},
	{"PauseForClaims", pauseForClaims}, {"PauseForEnds", pauseForEnds}, {"Cooldown", cooldown}, {"CooldownsOverlap", cooldownsOverlap},
	{"CooldownAfterResume", cooldownAfterResume}, {"CooldownOfTheInterrupted", cooldownOfTheInterrupted}, {"CooldownKeepsTheJob", cooldownKeepsTheJob},
	{"LanesTakeTurns", lanesTakeTurns}, {"LanesInOrder", lanesInOrder}, {"LimitChanged", limitChanged}, {"LimitRaised", limitRaised},
	{"LimitDeath", limitDeath}, {"LimitOrphan", limitOrphan}, {"LimitAlone", limitAlone},
	{"LimitSlowReturn", limitSlowReturn}, {"LimitRateAnswerLost", limitRateAnswerLost},
	{"RateAfterAStep", rateAfterAStep}, {"RateByTwoClocks", rateByTwoClocks}, {"RateGoesOn", rateGoesOn},
	{"LimitRecalls", limitRecalls}, {"LimitRecallsOfTheGone", limitRecallsOfTheGone}, {"CancelRunning", cancelRunning},
}
