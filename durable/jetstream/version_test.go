package jetstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/recur"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
	"github.com/tickwheel/tickwheel/durable/testservers/busy"
)

// setMetadata changes an entry of the metadata of a partition's stream, or removes it.
func setMetadata(t *testing.T, p *part, name, value string) {
	js, err := natsjs.New(p.Conn.NC)
	require.NoError(t, err)
	stream, err := js.Stream(t.Context(), p.Name)
	require.NoError(t, err)
	config := stream.CachedInfo().Config
	delete(config.Metadata, name)
	if value != "" {
		config.Metadata[name] = value
	}
	_, err = js.UpdateStream(t.Context(), config)
	require.NoError(t, err)
}

// contentsOf returns the configuration of a partition's stream, and all of its messages.
func contentsOf(t *testing.T, p *part) (config natsjs.StreamConfig, all []stream.Message) {
	js, err := natsjs.New(p.Conn.NC)
	require.NoError(t, err)
	stream, err := js.Stream(t.Context(), p.Name)
	require.NoError(t, err)
	for page, err := range p.Pages(t.Context(), p.subject(">"), 1, time.Time{}) {
		require.NoError(t, err)
		all = append(all, page...)
	}
	return stream.CachedInfo().Config, all
}

// fetchOne returns the next job that a worker is handed.
func fetchOne(t *testing.T, w driver.Worker) *driver.Delivery {
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	got := make(chan *driver.Delivery, 100)
	require.NoError(t, w.Fetch(ctx, func(all []*driver.Delivery) {
		for _, d := range all {
			got <- d
		}
		stop()
	}))
	return <-got
}

// A program whose engine is older than the store gets ErrVersion from each call that would
// change something, and changes nothing.
func TestNewerStoreIsRefused(t *testing.T) {
	p := newPart(t)
	e := connectPartTo(t, p)
	q, err := durable.Open(t.Context(), e)
	require.NoError(t, err)
	defer q.Close()
	work := driver.WorkConfig{Name: "w", Lease: time.Minute, Kinds: driver.NewKindSet([]string{"k"})}
	w, err := e.Work(t.Context(), work)
	require.NoError(t, err)
	claim := func() *driver.Delivery {
		d := fetchOne(t, w)
		require.Equal(t, driver.Granted, w.Claim(t.Context(), []*driver.Delivery{d})[0].Status)
		return d
	}
	dead, err := q.Add(t.Context(), durable.Job{Kind: "k", MaxAttempts: 1})
	require.NoError(t, err)
	require.NoError(t, w.Finish(t.Context(), []driver.Completion{{Delivery: claim(), End: driver.DeadLetter}})[0])
	refs, err := q.AddMany(t.Context(), durable.Job{Kind: "k"}, durable.Job{Kind: "other", Key: "key", Signals: true})
	require.NoError(t, err)
	d := claim()
	require.NoError(t, q.SetSchedule(t.Context(), "s", "@every 1h", durable.Job{Kind: "other"}))
	require.NoError(t, q.SetLimit(t.Context(), "l", durable.Limit{Kind: "other", Running: 1}))
	schedule, err := e.Schedule(t.Context(), "s")
	require.NoError(t, err)
	copied := t.TempDir()
	require.NoError(t, Backup(t.Context(), p.Conn.NC, copied))
	description := filepath.Join(copied, p.Name, metaFile)
	data, err := os.ReadFile(description)
	require.NoError(t, err)
	newer := strings.Replace(string(data), `"`+stream.MetaVersion+`": "1"`, `"`+stream.MetaVersion+`": "7"`, 1)
	require.NotEqual(t, string(data), newer)
	require.NoError(t, os.WriteFile(description, []byte(newer), 0o600))
	flow, err := e.FlowControl(t.Context())
	require.NoError(t, err)

	setMetadata(t, p, stream.MetaVersion, "7")
	time.Sleep(1100 * time.Millisecond)
	config, before := contentsOf(t, p)
	calls := changesOf(t, e, w, work, d, refs, dead, schedule.Revision, flow)
	calls["Connect"] = func() error { _, err := Connect(t.Context(), p.Conn.NC); return err }
	calls["Backup"] = func() error { return Backup(t.Context(), p.Conn.NC, t.TempDir()) }
	calls["Restore"] = func() error { return Restore(t.Context(), p.Conn.NC, copied) }
	for name, call := range calls {
		require.ErrorIs(t, call(), durable.ErrVersion, name)
	}
	require.Equal(t, driver.RetryLater, w.Claim(t.Context(), []*driver.Delivery{d})[0].Status)
	after, all := contentsOf(t, p)
	require.Equal(t, before, all)
	require.Equal(t, config, after)
	page, err := os.ReadFile("FORMAT.md")
	require.NoError(t, err)
	for _, m := range all {
		first, _, _ := strings.Cut(strings.TrimPrefix(m.Subject, p.subject("")), ".")
		require.Regexp(t, "\n\\| `"+first+"[.`]", string(page), "the page lists no such subject")
	}
}

// changes are the calls of an engine and its worker that change something.
func changesOf(t *testing.T, e driver.Engine, w driver.Worker, work driver.WorkConfig, d *driver.Delivery, refs []durable.Ref, dead durable.Ref,
	revision int64, flow *driver.FlowControl) map[string]func() error {
	now := time.Now()
	record := func(key string) driver.Record {
		r, err := driver.NewRecord(driver.Job{Kind: "k", Key: key}, now)
		require.NoError(t, err)
		return r
	}
	insert := func(key string) error {
		_, errs := e.Insert(t.Context(), []driver.Record{record(key)})
		return errs[0]
	}
	return map[string]func() error{
		"Insert":     func() error { return insert("") },
		"with a key": func() error { return insert("new") },
		"Cancel": func() error {
			_, errs := e.Cancel(t.Context(), refs[:1])
			_, more := e.Cancel(t.Context(), refs[1:2])
			return errors.Join(errs[0], more[0])
		},
		"Move":          func() error { _, err := e.Move(t.Context(), refs[1], now); return err },
		"Signal":        func() error { _, err := e.Signal(t.Context(), "key", nil, now); return err },
		"Redrive":       func() error { return e.Redrive(t.Context(), dead, now) },
		"Delete":        func() error { return e.Delete(t.Context(), dead) },
		"CancelRunning": func() error { _, err := e.CancelRunning(t.Context(), refs[0]); return err },
		"SetSchedule": func() error {
			return e.SetSchedule(t.Context(), revision, driver.Schedule{Name: "s", Revision: revision + 1}, nil)
		},
		"SetFlowControl": func() error {
			return e.SetFlowControl(t.Context(), flow.Revision(), driver.NewFlowControl(flow.Revision()+1, nil, nil))
		},
		"Work":      func() error { c := work; c.Name = "late"; _, err := e.Work(t.Context(), c); return err },
		"Heartbeat": func() error { return w.Heartbeat(t.Context()) },
		"Fetch":     func() error { return w.Fetch(t.Context(), func([]*driver.Delivery) {}) },
		"Finish": func() error {
			return w.Finish(t.Context(), []driver.Completion{{Delivery: d, End: driver.Done}})[0]
		},
		"Release": func() error { return w.Release(t.Context(), []*driver.Delivery{d}, 0) },
	}
}

// FORMAT.md names the version, and each field of what is stored.
func TestFormatPage(t *testing.T) {
	text, err := os.ReadFile("FORMAT.md")
	require.NoError(t, err)
	page := string(text)
	require.Contains(t, page, fmt.Sprintf("describes version %d of", wireVersion))
	for _, name := range []string{stream.MetaVersion, metaPartitions, metaBuckets, metaComplete, metaFile, dataFile} {
		require.Contains(t, page, "`"+name+"`")
	}
	for _, f := range fates[1:] {
		require.Contains(t, page, "`"+f+"`")
	}
	for _, v := range []any{
		wire{}, driver.Failure{}, wireSchedule{}, wireCounter{}, life{}, wireFreed{}, driver.LimitKey{}, driver.StoredLimit{}, driver.Pause{},
		recur.Occurrence{}, recur.Template{},
	} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
				require.Contains(t, page, "`"+name+"`", "%T", v)
			}
		}
	}
}

// A program of the next version raises the version of the store, and works with what is there.
// The Run of this version ends, and its jobs are taken over: at once, although its lease is long,
// and the end of its attempt cannot be stored.
func TestNextVersion(t *testing.T) {
	t.Parallel()
	p := newPart(t, soon)
	q, ran := outdated(t, p)
	_, err := q.AddMany(t.Context(), durable.Job{Kind: "k"}, durable.Job{Kind: "k", After: 2 * time.Second}, durable.Job{Kind: "k", After: 5 * time.Second})
	require.NoError(t, err)
	begun := <-ran
	e, err := Connect(t.Context(), p.Conn.NC, Version(wireVersion+1))
	require.NoError(t, err)
	config, _ := contentsOf(t, e.(*engine).parts[0])
	require.Equal(t, strconv.Itoa(wireVersion+1), config.Metadata[stream.MetaVersion])
	next, err := durable.Open(t.Context(), e, durable.WithLease(busy.Longer(3*time.Second)))
	require.NoError(t, err)
	defer next.Close()
	again := make(chan *durable.Attempt, 100)
	next.Handle("k", func(_ context.Context, a *durable.Attempt) error { again <- a; return nil })
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- next.Run(ctx) }()
	var refs []durable.Ref
	for range 3 {
		select {
		case a := <-again:
			refs = append(refs, a.Ref)
		case <-time.After(5 * time.Minute): // half of that lease
			require.Fail(t, "some were not taken over", "%v", refs)
		}
	}
	require.Contains(t, refs, begun.Ref)
	stop()
	require.NoError(t, <-done)
	require.Empty(t, again)
}

// outdated returns a Queue that runs jobs until a newer version ends it. It sends each job that
// it begins to ran; the handler returns when its context ends.
func outdated(t *testing.T, p *part) (*durable.Queue, <-chan *durable.Attempt) {
	q, err := durable.Open(t.Context(), connectPartTo(t, p), durable.WithLease(10*time.Minute))
	require.NoError(t, err)
	ran, done := make(chan *durable.Attempt, 100), make(chan error, 1)
	q.Handle("k", func(ctx context.Context, a *durable.Attempt) error {
		ran <- a
		<-ctx.Done()
		return context.Cause(ctx)
	})
	go func() { done <- q.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-done; !errors.Is(err, durable.ErrVersion) {
			t.Error(err)
		}
		q.Close()
	})
	return q, ran
}

// A stream whose version cannot be read is refused, whatever else its metadata says. That of
// a newer version is not read.
func TestVersionIsReadFirst(t *testing.T) {
	p := newPart(t)
	for version, want := range map[string]error{"": durable.ErrStorage, "x": durable.ErrStorage, "0": durable.ErrStorage, "2": durable.ErrVersion} {
		setMetadata(t, p, stream.MetaVersion, version)
		setMetadata(t, p, metaPartitions, "many")
		_, err := Connect(t.Context(), p.Conn.NC)
		require.ErrorIs(t, err, want)
		require.ErrorContains(t, err, "version")
	}
}

// withUnread adds a field to a record, as a newer version may.
func withUnread(data []byte) []byte {
	return bytes.Replace(data, []byte("}\n"), []byte(`,"added":{"by":["a newer",1]}}`+"\n"), 1)
}

// requireUnread requires the field that is not read in all messages of jobs and schedules of some filters.
func requireUnread(t *testing.T, p *part, filters ...string) {
	t.Helper()
	n := 0
	for _, filter := range filters {
		for page, err := range p.Pages(t.Context(), p.subject(filter), 1, time.Time{}) {
			require.NoError(t, err)
			for _, m := range page {
				if len(m.Data) > 0 && !bytes.Contains(m.Data, []byte(`"kind":"tick"`)) { // those are new
					require.Contains(t, string(m.Data), `,"added":{"by":["a newer",1]}}`, m.Subject)
					n++
				}
			}
		}
	}
	require.Positive(t, n)
}

// addUnread stores a job with a field that is not read.
func addUnread(t *testing.T, p *part, id string, due, now time.Time) durable.Ref {
	r := recordAt(id, due, now)
	r.Kind, r.Key, r.Signals, r.Payload = "k", id, true, []byte("payload}\n")
	w := p.records.recordWrite(&r, nil, p.nearOf(due), now, false)
	w.Data = withUnread(w.Data)
	require.NoError(t, p.Write(t.Context(), w, p.keyWrite(&r, 0)))
	return p.refOf(&r)
}

// A worker passes on the fields of a job or a schedule that it does not know, in each message
// that it writes of it.
func TestUnreadFieldsArePassedOn(t *testing.T) {
	p := newPart(t, soon)
	check := func(filters ...string) { t.Helper(); requireUnread(t, p, filters...) }
	now := p.Now().Truncate(time.Microsecond)
	job := func(id string, due time.Time) durable.Ref { return addUnread(t, p, id, due, now) }
	q, err := durable.Open(t.Context(), connectPartTo(t, p))
	require.NoError(t, err)
	defer q.Close()
	moved, signaled := job("moved", now.Add(time.Hour)), job("signaled", now.Add(time.Hour))
	ok, err := q.Reschedule(t.Context(), moved, now.Add(2*time.Hour))
	require.NoError(t, err)
	require.True(t, ok)
	check("h.>", "q.>")
	ok, err = q.Signal(t.Context(), "signaled", []byte("s"))
	require.NoError(t, err)
	require.True(t, ok)
	failing := job("failing", now.Add(4*time.Second))
	check("h.>", "q.>")
	require.NoError(t, q.SetSchedule(t.Context(), "s", "@every 300ms", durable.Job{Kind: "tick"}))
	schedule, err := p.Last(t.Context(), p.scheduleSubject("s"))
	require.NoError(t, err)
	newer := withUnread(append(schedule.Data, '\n'))
	require.NoError(t, p.Write(t.Context(), stream.Write{Subject: schedule.Subject, Data: newer, Last: stream.Seq(schedule.Seq), Rollup: true}))
	ticks := make(chan bool, 1000)
	q.Handle("tick", func(context.Context, *durable.Attempt) error { ticks <- true; return nil })
	ran := make(chan *durable.Attempt, 100)
	next := make(chan error)
	q.Handle("k", func(ctx context.Context, a *durable.Attempt) error {
		ran <- a
		select {
		case err := <-next:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	require.Equal(t, signaled, (<-ran).Ref)
	next <- nil
	require.Equal(t, failing, (<-ran).Ref)
	check("q.>")
	next <- durable.RetryAfter(0, errors.New("once more"))
	a := <-ran
	require.Equal(t, 2, a.Number)
	require.Equal(t, "payload}\n", string(a.Job.Payload))
	check("q.>")
	next <- durable.Discard(errors.New("no more"))
	require.Eventually(t, func() bool {
		i, err := q.Get(t.Context(), failing)
		return err == nil && i.State == durable.Dead
	}, 2*time.Minute, time.Millisecond)
	check("x.>")
	require.NoError(t, q.Redrive(t.Context(), failing))
	require.Equal(t, failing, (<-ran).Ref)
	check("q.>")
	next <- nil
	for range 2 { // the end of the first is stored by then
		<-ticks
	}
	check("s.>")
	stop()
	require.NoError(t, <-done)
}
