package durable_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/enginetest"
)

// sick is an engine whose verbs fail while they are in the map.
type sick struct {
	driver.Engine
	mu     sync.Mutex
	faults map[string]error
	feeds  []context.CancelFunc
	notify func(driver.Notice)
	fail   func(error) // WorkConfig.Trouble
}

func (s *sick) fault(verb string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults[verb]
}

func (s *sick) set(verb string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[verb] = err
}

func (s *sick) Now(ctx context.Context) (time.Time, time.Duration, error) {
	if err := s.fault("now"); err != nil {
		return time.Time{}, 0, err
	}
	now, off, err := s.Engine.Now(ctx)
	if s.fault("clock") != nil {
		now = now.Add(-time.Hour)
	}
	return now, off, err
}

func (s *sick) Schedule(ctx context.Context, name string) (driver.Schedule, error) {
	if err := s.fault("series"); err != nil {
		return driver.Schedule{}, err
	}
	return s.Engine.Schedule(ctx, name)
}

func (s *sick) SetFlowControl(ctx context.Context, was int64, f *driver.FlowControl) error {
	if err := s.fault("flow"); err != nil {
		return err
	}
	return s.Engine.SetFlowControl(ctx, was, f)
}

func (s *sick) Progress(ctx context.Context, refs []driver.Ref) ([]driver.Progress, []error) {
	all, errs := s.Engine.Progress(ctx, refs)
	if err := s.fault("progress"); err != nil {
		errs = slices.Repeat([]error{err}, len(refs))
	}
	return all, errs
}

func (s *sick) Work(ctx context.Context, c driver.WorkConfig) (driver.Worker, error) {
	if err := s.fault("work"); err != nil {
		if err == errSilent {
			<-ctx.Done()
		}
		return nil, err
	}
	s.mu.Lock()
	s.notify, s.fail = c.Notify, c.Trouble
	s.mu.Unlock()
	w, err := s.Engine.Work(ctx, c)
	return &sickWorker{w, s}, err
}

type sickWorker struct {
	driver.Worker
	s *sick
}

func (w *sickWorker) Fetch(ctx context.Context, give func([]*driver.Delivery)) error {
	if err := w.s.fault("feed"); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.s.mu.Lock()
	w.s.feeds = append(w.s.feeds, cancel)
	w.s.mu.Unlock()
	if err := w.Worker.Fetch(ctx, give); err != nil {
		return err
	}
	return w.s.fault("feed")
}

// say sends a notice to the worker, once there is one.
func (s *sick) say(n driver.Notice) {
	time.Sleep(time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notify(n)
}

// interrupt ends the calls of Fetch that are under way.
func (s *sick) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cancel := range s.feeds {
		cancel()
	}
	s.feeds = nil
}

// Claim counts too many attempts, as if all had died with their process.
func (w *sickWorker) Claim(ctx context.Context, held []*driver.Delivery) []driver.ClaimResult {
	verdicts := w.Worker.Claim(ctx, held)
	if w.s.fault("claim") != nil {
		for i := range verdicts {
			verdicts[i].Attempt = 100
		}
	}
	return verdicts
}

func (w *sickWorker) Finish(ctx context.Context, outs []driver.Completion) []error {
	if err := w.s.fault("finish"); err != nil {
		return slices.Repeat([]error{err}, len(outs))
	}
	return w.Worker.Finish(ctx, outs)
}

func (w *sickWorker) Release(ctx context.Context, held []*driver.Delivery, after time.Duration) error {
	if err := w.s.fault("release"); err != nil {
		return err
	}
	return w.Worker.Release(ctx, held, after)
}

func (w *sickWorker) Heartbeat(ctx context.Context) error {
	if err := w.s.fault("beat"); err != nil {
		return err
	}
	return w.Worker.Heartbeat(ctx)
}

func (w *sickWorker) Close(ctx context.Context) error {
	if err := w.s.fault("close"); err != nil {
		return err
	}
	return w.Worker.Close(ctx)
}

// clockSet is the message about an engine's clock that has stepped.
const clockSet = "the engine's clock was set, or another server answers, or this process stood still"

// noHandler is the message about a kind that nobody can run.
const noHandler = "due jobs wait, since no worker handles their kind"

// storeSchedule stores a schedule that this release does not make, and an occurrence of it.
func storeSchedule(t *testing.T, s *sick, definition string) {
	daily := driver.Schedule{Name: "daily", Definition: definition, Revision: 1}
	require.NoError(t, s.SetSchedule(t.Context(), 0, daily, func(time.Time, *driver.Record) (*driver.Record, error) {
		rec, err := driver.NewRecord(durable.Job{Kind: "good"}, time.Now())
		rec.Key, rec.Schedule, rec.Occurrence = driver.OccurrenceKey("daily"), "daily", definition
		return &rec, err
	}))
}

// messages has what provokes each message, in a minute from the start of Run, and its
// level and attributes.
var messages = map[string]struct {
	level      string
	attributes []string
	provoke    func(t *testing.T, q *durable.Queue, s *sick)
}{
	"an attempt failed": {"WARN", []string{"kind", "ref", "attempt", "of", "dead", "error", "next"}, func(t *testing.T, q *durable.Queue, _ *sick) {
		add(t, q, durable.Job{Kind: "bad"})
	}},
	"a job is dead; its last attempt did not end": {"WARN", []string{"kind", "ref", "error"}, func(t *testing.T, q *durable.Queue, s *sick) {
		s.set("claim", errSilent)
		add(t, q, durable.Job{Kind: "good"})
	}},
	"a job has expired": {"WARN", []string{"kind", "ref", "dropped"}, func(t *testing.T, q *durable.Queue, _ *sick) {
		ref := add(t, q, durable.Job{Kind: "good", After: 10 * time.Second, Expires: time.Now().Add(20 * time.Second)})[0]
		ok, err := q.Reschedule(t.Context(), ref, time.Now().Add(30*time.Second))
		require.NoError(t, err)
		require.True(t, ok)
	}},
	"another worker has the job; the end of the attempt is not stored": {"WARN", []string{"ref"}, func(t *testing.T, q *durable.Queue, s *sick) {
		s.set("finish", durable.ErrLeaseLost)
		add(t, q, durable.Job{Kind: "good"})
	}},
	"an attempt was completed in its handler's transaction, or another worker has the job": {"WARN", []string{"ref", "error"}, func(t *testing.T, q *durable.Queue, _ *sick) {
		add(t, q, durable.Job{Kind: "lost"})
	}},
	"cannot store the end of an attempt; trying again": {"WARN", []string{"ref", "error", "pause"}, func(t *testing.T, q *durable.Queue, s *sick) {
		s.set("finish", errSilent)
		add(t, q, durable.Job{Kind: "good"})
		time.AfterFunc(time.Second, func() { s.set("finish", nil) })
	}},
	"a handler has asked for a cooldown": {"WARN", []string{"of", "until", "error"}, func(t *testing.T, q *durable.Queue, _ *sick) {
		add(t, q, durable.Job{Kind: "cools"})
	}},
	"cannot store a cooldown; only its job waits": {"WARN", []string{"of", "for", "error"}, func(t *testing.T, q *durable.Queue, s *sick) {
		s.set("flow", errSilent)
		add(t, q, durable.Job{Kind: "cools"})
	}},
	"cannot read whether an awaited job has ended; trying again": {"WARN", []string{"ref", "error"}, func(t *testing.T, q *durable.Queue, s *sick) {
		s.set("progress", errSilent)
		time.AfterFunc(5*time.Second, func() { s.set("progress", nil) })
		_, err := q.Await(t.Context(), add(t, q, durable.Job{Kind: "good"})[0])
		require.ErrorIs(t, err, durable.ErrEnded)
	}},
	"a handler has not returned after its Timeout": {"WARN", []string{"kind", "ref", "running"}, func(t *testing.T, q *durable.Queue, _ *sick) {
		add(t, q, durable.Job{Kind: "hangs", Timeout: time.Second})
		time.Sleep(30 * time.Second)
		require.Zero(t, q.Stats().Stuck)
		time.Sleep(10 * time.Second)
		require.Equal(t, int64(1), q.Stats().Stuck)
	}},
	"handlers did not return within WithGrace; their contexts end": {"WARN", []string{"handlers"}, func(t *testing.T, q *durable.Queue, _ *sick) {
		add(t, q, durable.Job{Kind: "slow"})
	}},
	noHandler: {"WARN", []string{"kind", "ref", "overdue"}, func(t *testing.T, q *durable.Queue, _ *sick) {
		add(t, q, durable.Job{Kind: "another"}, durable.Job{Kind: "another"})
	}},
	"cannot read the spec of a schedule; other workers run its jobs": {"WARN", []string{"name"}, func(t *testing.T, _ *durable.Queue, s *sick) {
		storeSchedule(t, s, `{"spec":"@moon"}`)
	}},
	"cannot read a schedule; trying again": {"WARN", []string{"name", "error"}, func(t *testing.T, q *durable.Queue, s *sick) {
		require.NoError(t, q.SetSchedule(t.Context(), "daily", "@every 1s", durable.Job{Kind: "good"}))
		s.set("finish", driver.ErrChanged)
		s.set("series", errSilent)
		time.AfterFunc(5*time.Second, func() { s.set("series", nil); s.set("finish", nil) })
	}},
	"cannot fetch jobs; trying again": {"WARN", []string{"error", "pause"}, func(_ *testing.T, _ *durable.Queue, s *sick) {
		time.AfterFunc(time.Second, func() { s.set("feed", nil) })
	}},
	"cannot renew the lease": {"WARN", []string{"error", "silent"}, func(_ *testing.T, _ *durable.Queue, s *sick) {
		s.set("beat", errSilent)
		time.AfterFunc(15*time.Second, func() { s.set("beat", nil) })
	}},
	"cannot hand back jobs; others get them after the lease": {"WARN", []string{"error"}, func(t *testing.T, q *durable.Queue, s *sick) {
		s.set("release", errSilent)
		add(t, q, durable.Job{Kind: "good", After: time.Minute + time.Second})
	}},
	"cannot close the worker; others wait for the end of its lease": {"WARN", []string{"error"}, func(_ *testing.T, _ *durable.Queue, s *sick) {
		s.set("close", errSilent)
	}},
	"cannot read the engine's clock": {"WARN", []string{"error", "silent"}, func(_ *testing.T, _ *durable.Queue, s *sick) {
		s.set("now", errSilent)
	}},
	"the engine's clock can be read again": {"WARN", []string{"silent"}, func(_ *testing.T, _ *durable.Queue, s *sick) {
		s.set("now", errSilent)
		time.AfterFunc(30*time.Second, func() { s.set("now", nil) })
	}},
	clockSet: {"WARN", []string{"by"}, func(t *testing.T, q *durable.Queue, s *sick) {
		for i := range int64(2) {
			require.Equal(t, 2*i, q.Stats().ClockSteps)
			s.set("clock", errSilent)
			time.Sleep(5 * time.Second)
			require.Equal(t, 2*i+1, q.Stats().ClockSteps)
			s.set("clock", nil)
			time.Sleep(5 * time.Second)
		}
	}},
	"a fault of the store may keep jobs from running, or lose them": {"ERROR", []string{"error"}, func(_ *testing.T, _ *durable.Queue, s *sick) {
		time.Sleep(time.Second)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.fail(errSilent)
	}},
	"the store has not the claims that this worker has; the jobs run again": {"WARN", []string{"forgotten", "lost"}, func(_ *testing.T, _ *durable.Queue, s *sick) {
		s.say(driver.Notice{Forgotten: 1})
		s.say(driver.Notice{Forgotten: 2}) // of the same
	}},
	"the store went back and lacks what it had stored last; follow BACKUP.md, After a failover": {"ERROR", []string{"seen"}, func(_ *testing.T, _ *durable.Queue, s *sick) {
		s.say(driver.Notice{WentBack: "revision 1 after 2"})
	}},
	"announcements of other processes do not arrive; polls find their jobs": {"WARN", nil, func(_ *testing.T, _ *durable.Queue, s *sick) {
		s.say(driver.Notice{Deaf: true})
	}},
	"announcements of other processes arrive again": {"WARN", nil, func(_ *testing.T, _ *durable.Queue, s *sick) {
		s.say(driver.Notice{Hears: true})
	}},
	"Run ended before the engine made a worker": {"WARN", []string{"error"}, func(*testing.T, *durable.Queue, *sick) {}},
	"the lease was not renewed in time": {"ERROR", []string{"silent", "handlers", "dropped"}, func(_ *testing.T, _ *durable.Queue, s *sick) {
		s.set("beat", errSilent)
	}},
	"cannot store the ends of attempts; the jobs will run again": {"ERROR", []string{"attempts"}, func(t *testing.T, q *durable.Queue, s *sick) {
		s.set("finish", errSilent)
		add(t, q, durable.Job{Kind: "good"})
	}},
	"a schedule ends; no occurrence can follow": {"ERROR", []string{"name", "error"}, func(t *testing.T, _ *durable.Queue, s *sick) {
		storeSchedule(t, s, `{"spec":"@every 1h","start":253402299000000000,"jitter":34560000000000}`) // up to the year 10000
	}},
}

// Each message is logged, with the level and the attributes that the documentation of
// WithLogger names, and with no payload or key.
func TestMessages(t *testing.T) {
	for message, m := range messages {
		t.Run(message, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				s := &sick{Engine: enginetest.NewMemory().Open(t), faults: map[string]error{}}
				q, err := durable.Open(t.Context(), s, durable.WithLogger(slog.New(slog.NewJSONHandler(&log, nil))), durable.WithGrace(time.Minute))
				require.NoError(t, err)
				defer q.Close()
				q.Handle("good", func(context.Context, *durable.Attempt) error { return nil })
				q.Handle("bad", func(context.Context, *durable.Attempt) error { return errors.New("no") })
				q.Handle("hangs", func(context.Context, *durable.Attempt) error { time.Sleep(time.Minute); return nil })
				q.Handle("slow", func(ctx context.Context, _ *durable.Attempt) error {
					<-ctx.Done()
					require.ErrorIs(t, context.Cause(ctx), durable.ErrClosed)
					return context.Cause(ctx)
				})
				q.Handle("cools", func(context.Context, *durable.Attempt) error { return durable.Cooldown(time.Hour, errSilent) })
				q.Handle("lost", func(ctx context.Context, a *durable.Attempt) error {
					require.NoError(t, driver.Complete(ctx, a, written(ctx)))
					return errors.New("the answer to commit was lost")
				})
				switch { // what is asked once, at the start
				case strings.Contains(message, "cannot fetch jobs"):
					s.set("feed", errSilent)
				case strings.Contains(message, "made a worker"):
					s.set("work", errSilent)
				}
				stop := start(t, q)
				m.provoke(t, q, s)
				time.Sleep(time.Minute)
				stop()
				require.NoError(t, q.Close())
				requireLogged(t, &log, message, m.level, m.attributes)
			})
		})
	}
}

func requireLogged(t *testing.T, log *bytes.Buffer, message, level string, attributes []string) {
	t.Helper()
	found := 0
	for line := range strings.Lines(log.String()) {
		entry := map[string]any{}
		require.NoError(t, json.Unmarshal([]byte(line), &entry))
		require.Contains(t, messages, strings.TrimPrefix(entry["msg"].(string), "durable: "), "an unknown message")
		if entry["msg"] != "durable: "+message {
			continue
		}
		found++
		require.Equal(t, level, entry["level"])
		delete(entry, "time")
		delete(entry, "level")
		delete(entry, "msg")
		require.ElementsMatch(t, attributes, slices.Collect(maps.Keys(entry)))
	}
	require.Positive(t, found, "%s", log)
	if message == noHandler {
		require.Equal(t, 1, found, "once for each kind")
	}
	if strings.HasPrefix(message, "the store ") {
		require.Equal(t, 1, found, "once")
	}
	if message == clockSet {
		require.Equal(t, 4, found, "once for each step")
	}
}

// Every message that is in the code is in the test, and in the documentation of
// WithLogger with its attributes.
func TestMessagesAreDocumented(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	inside, err := filepath.Glob("internal/*/*.go")
	require.NoError(t, err)
	deeper, err := filepath.Glob("internal/*/*/*.go")
	require.NoError(t, err)
	inCode := map[string]bool{}
	for _, file := range slices.Concat(files, inside, deeper) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, found := range regexp.MustCompile(`[lL]og\.[A-Z][a-z]+\("durable: ([^"]+)"`).FindAllSubmatch(text, -1) {
			inCode[string(found[1])] = true
		}
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(messages)), slices.Collect(maps.Keys(inCode)))

	options, err := os.ReadFile("options.go")
	require.NoError(t, err)
	text := string(options)
	text = text[strings.Index(text, "// WithLogger"):strings.Index(text, "func WithLogger")]
	text = strings.Join(strings.Fields(strings.ReplaceAll(text, "//", "")), " ")
	items := strings.Split(text, " - ")
	for message, m := range messages {
		i := slices.IndexFunc(items, func(item string) bool { return strings.HasPrefix(item+": ", message+": ") })
		require.GreaterOrEqual(t, i, 0, "%q is not documented", message)
		list := strings.TrimPrefix(strings.TrimPrefix(items[i], message), ": ")
		list, _, _ = strings.Cut(list, " At level ")
		list, _, _ = strings.Cut(list, " Payloads")
		list = regexp.MustCompile(` \([^)]*\)`).ReplaceAllString(list, "")
		require.Equal(t, strings.Join(m.attributes, ", "), list, message)
		require.Equal(t, m.level == "WARN", strings.Contains(text[strings.Index(text, message):], "At level Error"), message)
	}
}
