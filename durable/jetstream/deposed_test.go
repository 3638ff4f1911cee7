package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
	"github.com/tickwheel/tickwheel/durable/testservers/ports"
)

// link is a way from one server to another. While it is locked nothing comes through, in
// either direction, and the connections stay.
type link struct {
	sync.RWMutex
	listener net.Listener
	to       string
}

func newLink(t *testing.T, to string) *link {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := &link{listener: l, to: to}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			go g.carry(in, out)
			go g.carry(out, in)
		}
	}()
	return g
}

func (g *link) carry(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		g.RLock()
		_, writeErr := to.Write(buffer[:n])
		g.RUnlock()
		if err != nil || writeErr != nil {
			return
		}
	}
}

// divisible is three servers, each of which can be cut off from the others.
type divisible struct {
	servers [3]*server.Server
	links   map[[2]int]*link // by from and to
}

func newDivisible(t *testing.T) *divisible {
	d := &divisible{links: map[[2]int]*link{}}
	reserved, err := ports.Reserve(3)
	require.NoError(t, err)
	t.Cleanup(reserved.Release)
	for from := range 3 {
		for to := range 3 {
			if from != to {
				d.links[[2]int{from, to}] = newLink(t, fmt.Sprintf("127.0.0.1:%d", reserved.Ports[to]))
			}
		}
	}
	for i := range d.servers {
		opts := &server.Options{
			ServerName: fmt.Sprintf("n%d", i), Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, JetStream: true,
			StoreDir: t.TempDir(), JetStreamMaxStore: 1 << 30, JetStreamMaxMemory: 1 << 30,
		}
		opts.Cluster.Name, opts.Cluster.Host, opts.Cluster.Port = "test", "127.0.0.1", reserved.Ports[i]
		opts.Cluster.NoAdvertise = true // or they would find a way around the links
		for to := range 3 {
			if to != i {
				opts.Routes = append(opts.Routes, &url.URL{Scheme: "nats", Host: d.links[[2]int{i, to}].listener.Addr().String()})
			}
		}
		d.servers[i], err = server.NewServer(opts)
		require.NoError(t, err)
		d.servers[i].Start()
	}
	t.Cleanup(func() {
		for _, s := range d.servers {
			s.Shutdown()
		}
	})
	for _, s := range d.servers {
		require.True(t, s.ReadyForConnections(2*time.Minute))
	}
	return d
}

// cutOff locks all ways to and from a server, until the end of the test.
func (d *divisible) cutOff(t *testing.T, i int) {
	for ways, g := range d.links {
		if ways[0] == i || ways[1] == i {
			g.Lock()
			t.Cleanup(g.Unlock)
		}
	}
}

func (d *divisible) open(t *testing.T, i int) *part {
	nc, err := nats.Connect(d.servers[i].ClientURL(), nats.MaxReconnects(-1), nats.Timeout(time.Minute))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		e, err := Connect(ctx, nc, WithReplicas(3))
		cancel()
		if err == nil {
			t.Cleanup(func() { e.Close() })
			return e.(*engine).parts[0]
		}
		require.True(t, time.Now().Before(end), "the cluster does not start: %v", err)
	}
}

// leader returns who leads the stream, as a server knows it; -1 for nobody.
func (p *part) leader(t *testing.T) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	info, err := p.Info(ctx, "")
	if err != nil || info.Leader == "" {
		return -1
	}
	var n int
	_, err = fmt.Sscanf(info.Leader, "n%d", &n)
	require.NoError(t, err)
	return n
}

// awaitLeader waits until another server than the old leader leads.
func (p *part) awaitLeader(t *testing.T, old int) error {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if n := p.leader(t); n >= 0 && n != old {
			return nil
		}
	}
	return errors.New("nobody was elected")
}

// A leader that is cut off answers for some seconds as if it led still. A worker whose
// connection moves there between the write of its claim and the look at the bucket must
// not begin what has ended meanwhile, nor a Cancel be true, nor a lease be over.
func TestDeposedLeader(t *testing.T) {
	t.Parallel()
	// The election may take longer than the old leader takes to notice, and a server that
	// has just been told of a stream may not answer yet.
	for try := range 20 {
		err := deposedLeader(t)
		if err == nil {
			return
		}
		t.Logf("try %d: %v", try, err)
	}
	require.FailNow(t, "no old leader answered")
}

// deposedLeader returns an error if it came to nothing.
func deposedLeader(t *testing.T) error {
	d := newDivisible(t)
	first := d.open(t, 0)
	old := first.leader(t)
	if old < 0 {
		return errors.New("the leader is not known")
	}
	deposed, p := d.open(t, old), d.open(t, (old+1)%3)
	now := p.Now().Truncate(time.Microsecond)
	b := p.nearOf(now)
	found, err := p.insertAndFind(t.Context(), b, recordAt("claimed", now, now), recordAt("canceled", now, now))
	if err != nil {
		return err
	}
	d.cutOff(t, old)
	// The vote of a server whose log is empty counts only if all servers vote. Then nobody is elected
	// without the old leader.
	if err := p.awaitLeader(t, old); err != nil {
		return err
	}
	// The jobs end, and that is forgotten.
	ok, err := p.markClosed(t.Context(), p.nearMark(b), func(f *watermark) { f.near = max(f.near, b) })
	if err == nil {
		require.True(t, ok)
		err = p.PurgeAll(t.Context(), p.queues.nearSubject(b, "k"))
	}
	if err != nil {
		return err
	}

	// What was handed out before is claimed and canceled; the connection moves in between.
	e := newEngine("default", []*part{p}, nil)
	w := newWorker(e, driver.WorkConfig{Name: "w", Kinds: driver.NewKindSet([]string{"k"}), Lease: 30 * time.Second})
	hd := &handle{p: p.buckets, at: location{id: "claimed", bucket: b}, since: time.Now(), seq: found["claimed"].Seq, record: &driver.Record{}}
	hd.status = status{fate: claimed, token: "t", worker: "w", attempt: 1}
	at := location{id: "canceled", bucket: b}
	res := p.Commit(t.Context(), []stream.Group{
		{{Subject: p.statusSubject(hd.at), Data: hd.status.encode(), Last: stream.Seq(0)}},
		{{Subject: p.statusSubject(at), Data: status{fate: canceled, token: "t"}.encode(), Last: stream.Seq(0)}},
	})
	if err := errors.Join(res[0].Err, res[1].Err); err != nil {
		return err
	}
	hd.status.seq = res[0].First
	hd.p = deposed.buckets
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := deposed.OfLeader(ctx, map[string]any{"seq": hd.seq}); err != nil {
		return fmt.Errorf("the old leader has noticed too early: %w", err)
	}
	held := &driver.Delivery{Record: recordAt("claimed", now, now), Claim: hd}
	result := w.claimer.confirm(ctx, deposed, held, deposed.stillOpen(ctx, hd))
	ok, _ = deposed.changes.confirmCancel(ctx, address{bucket: hd.at.bucket, id: hd.at.id}, at, 0, res[1].First)
	if deposed.leader(t) != old {
		return errors.New("the old leader has noticed meanwhile")
	}
	require.NotEqual(t, driver.Granted, result.Status, "it has ended")
	require.False(t, ok, "it has ended")

	// Where the connection goes to the others, it is told.
	hd.p = p.buckets
	require.Equal(t, driver.Gone, w.claimer.confirm(t.Context(), p, held, p.stillOpen(t.Context(), hd)).Status)
	ok, err = p.changes.confirmCancel(t.Context(), address{bucket: hd.at.bucket, id: hd.at.id}, at, 0, res[1].First)
	require.NoError(t, err)
	require.False(t, ok)
	return nil
}

// What a leader that was cut off has read is no answer, unless others know of it: not that a job waits
// under a key, nor that none does, nor that a job runs.
func TestDeposedAnswers(t *testing.T) {
	t.Parallel()
	for try := range 20 {
		err := deposedAnswers(t)
		if err == nil {
			return
		}
		t.Logf("try %d: %v", try, err)
	}
	require.FailNow(t, "no old leader answered")
}

// deposedAnswers returns an error if it came to nothing.
func deposedAnswers(t *testing.T) error {
	d := newDivisible(t)
	first := d.open(t, 0)
	old := first.leader(t)
	if old < 0 {
		return errors.New("the leader is not known")
	}
	deposed, p := d.open(t, old), d.open(t, (old+1)%3)
	now := p.Now().Truncate(time.Microsecond)
	ctx := t.Context()
	_, errs := p.inserts.insert(ctx, []driver.Record{
		keyedAt(now, "ends", "ends", driver.KeyRefuse, false), keyedAt(now, "deaf", "replaced", driver.KeyRefuse, false), keyedAt(now, "runs", "", driver.KeyRefuse, false),
		keyedAt(now, "begins", "", driver.KeyRefuse, false),
	})
	bucket := p.nearOf(now.Add(time.Hour))
	runs, ends := location{id: "runs", bucket: bucket}, address{bucket: bucket, born: now.UnixMicro(), id: "ends"}
	claim, err := p.WriteSeq(ctx, stream.Write{Subject: p.statusSubject(runs), Data: status{fate: claimed, token: "t", worker: "w", attempt: 1}.encode(), Last: stream.Seq(0)})
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	e := newEngine("default", []*part{p}, nil)
	paused := []driver.Pause{{Pausable: driver.Pausable{Kind: "k"}}}
	stopped := driver.Schedule{Name: "stopped", Definition: `{"spec":"@daily","paused":true}`, Revision: 1}
	if err := errors.Join(e.SetFlowControl(ctx, 0, driver.NewFlowControl(1, nil, paused)), e.SetSchedule(ctx, 0, stopped, nil)); err != nil {
		return err
	}
	d.cutOff(t, old)
	if err := p.awaitLeader(t, old); err != nil {
		return err
	}
	none := func(time.Time, *driver.Record) (*driver.Record, error) { return nil, nil }
	stopped.Definition, stopped.Revision = `{"spec":"@daily"}`, 2
	set := e.SetFlowControl(ctx, 1, driver.NewFlowControl(2, nil, nil))
	if err := errors.Join(set, e.SetSchedule(ctx, 1, stopped, none), e.SetSchedule(ctx, 0, driver.Schedule{Name: "new", Definition: stopped.Definition, Revision: 1}, none)); err != nil {
		return err
	}
	_, err = p.changes.cancel(ctx, ends)
	_, errs = p.inserts.insert(ctx, []driver.Record{keyedAt(now, "hears", "replaced", driver.KeyReplace, true), keyedAt(now, "new", "free before", driver.KeyRefuse, false)})
	freedBy := p.Write(ctx, stream.Write{Subject: p.statusSubject(runs), Data: status{fate: freed, token: "t2"}.encode(), Last: stream.Seq(claim)})
	begins := p.Write(ctx, stream.Write{Subject: p.statusSubject(location{id: "begins", bucket: bucket}), Data: status{fate: claimed, token: "t", worker: "w", attempt: 1}.encode(), Last: stream.Seq(0)})
	if err := errors.Join(append(errs, err, freedBy, begins)...); err != nil {
		return err
	}

	// The connection goes to the old leader.
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := deposed.OfLeader(short, map[string]any{"last_by_subj": p.keySubject("ends")}); err != nil {
		return fmt.Errorf("the old leader has noticed too early: %w", err)
	}
	answers := deposed.askAll(short, now)
	if deposed.leader(t) != old {
		return errors.New("the old leader has noticed meanwhile")
	}
	for what, err := range answers {
		require.Error(t, err, what)
		require.NotErrorIs(t, err, driver.ErrExists, what)
		require.NotErrorIs(t, err, driver.ErrNotFound, what)
	}

	// The others know.
	for _, onKey := range []driver.OnKey{driver.KeyKeep, driver.KeyRefuse} {
		_, errs := p.inserts.insert(ctx, []driver.Record{keyedAt(now, "last"+fmt.Sprint(onKey), "ends", onKey, false)})
		if onKey == driver.KeyKeep {
			require.NoError(t, errs[0])
		} else {
			require.ErrorIs(t, errs[0], driver.ErrExists)
		}
	}
	ok, err := p.changes.signal(ctx, "replaced", nil, now)
	require.NoError(t, err)
	require.True(t, ok)
	return nil
}

// keyedAt returns the record of a job with a key that is due in an hour.
func keyedAt(now time.Time, id, key string, onKey driver.OnKey, signals bool) driver.Record {
	r := recordAt(id, now.Add(time.Hour), now)
	r.Key, r.OnKey, r.Signals = key, onKey, signals
	return r
}

// askAll asks a leader that was deposed, all at once, and returns its answers: nil for one that is taken for true.
func (p *part) askAll(ctx context.Context, now time.Time) map[string]error {
	e := newEngine("default", []*part{p}, nil)
	runs := address{bucket: p.nearOf(now.Add(time.Hour)), born: now.UnixMicro(), id: "runs"}
	begins := address{bucket: runs.bucket, born: runs.born, id: "begins"}
	add := func(onKey driver.OnKey) error {
		_, errs := p.inserts.insert(ctx, []driver.Record{keyedAt(now, "another"+fmt.Sprint(onKey), "ends", onKey, false)})
		return errs[0]
	}
	calls := map[string]func() error{
		"Keep of a job that was canceled": func() error { return add(driver.KeyKeep) },
		"ErrExists of a key that is free": func() error { return cmp.Or(add(driver.KeyRefuse), errors.New("stored")) },
		"Signal of a job that waits":      func() error { _, err := p.changes.signal(ctx, "replaced", nil, now); return err },
		"Lookup of a job that waits":      func() error { _, err := e.Lookup(ctx, "free before"); return err },
		"CancelRunning of a job that runs": func() error {
			_, err := p.changes.cancelRunning(ctx, begins, "", func(string) {})
			return err
		},
		"Pause that was ended":          func() error { return confirmFlowControl(ctx, e) },
		"pause of a schedule, ended":    func() error { return confirmSchedule(ctx, e, "stopped") },
		"absence of a schedule that is": func() error { return confirmSchedule(ctx, e, "new") },
		"Cancel of a job that waits":    func() error { _, err := p.changes.cancel(ctx, runs); return err },
		"Move of a job that waits":      func() error { _, err := p.changes.move(ctx, runs, now); return err },
	}
	answers := map[string]error{}
	var mu sync.Mutex
	var asking sync.WaitGroup
	for what, call := range calls {
		asking.Go(func() {
			err := call()
			mu.Lock()
			defer mu.Unlock()
			answers[what] = err
		})
	}
	asking.Wait()
	return answers
}

// confirmFlowControl confirms the limits and pauses that are read.
func confirmFlowControl(ctx context.Context, e *engine) error {
	f, err := e.FlowControl(ctx)
	if err != nil {
		return err
	}
	return e.SetFlowControl(ctx, f.Revision(), f)
}

// confirmSchedule confirms a schedule that is read, or that there is none.
func confirmSchedule(ctx context.Context, e *engine, name string) error {
	s, err := e.Schedule(ctx, name)
	if s.Name = name; err != nil && !errors.Is(err, driver.ErrNotFound) {
		return err
	}
	return e.SetSchedule(ctx, s.Revision, s, nil)
}

// insertAndFind inserts records of a near bucket, and returns their messages by ID.
func (p *part) insertAndFind(ctx context.Context, b int64, records ...driver.Record) (map[string]stream.Message, error) {
	if _, errs := p.inserts.insert(ctx, records); errors.Join(errs...) != nil {
		return nil, errors.Join(errs...)
	}
	found := map[string]stream.Message{}
	for page, err := range p.Pages(ctx, p.queues.nearSubject(b, "k"), 1, time.Time{}) {
		if err != nil {
			return nil, err
		}
		for _, m := range page {
			r, err := decode(m.Data)
			if err != nil {
				return nil, err
			}
			found[r.ID] = m
		}
	}
	return found, nil
}

// behind makes reads of many messages at once be answered by a server that has none of them yet.
func (p *part) behind(t *testing.T) {
	api := p.API
	p.API = "behind."
	p.LearnReplicas(3)
	_, err := p.Conn.NC.Subscribe("behind.>", func(m *nats.Msg) {
		what := strings.TrimPrefix(m.Subject, "behind.")
		if what == "DIRECT.GET."+p.Name {
			m.RespondMsg(&nats.Msg{Header: nats.Header{"Status": {"404"}, "Description": {"No Results"}}})
			return
		}
		p.Conn.NC.PublishRequest(api+what, m.Reply, m.Data)
	})
	require.NoError(t, err)
}

// A job waits though the server that is asked for its bucket is behind, as one is that was started
// again. Else its key would be taken to be free, and its schedule would begin anew beside it.
func TestServerBehind(t *testing.T) {
	t.Parallel()
	p := newPart(t)
	now := p.Now()
	b := p.nearOf(now)
	r := recordAt("a", now, now)
	r.Key = "key"
	require.NoError(t, p.insertOne(t.Context(), r))
	closeBucket(t, p, b+1) // b is below the watermark, and not closed
	p.behind(t)
	h, err := p.keyHolder(t.Context(), "key")
	require.NoError(t, err)
	require.True(t, h.alive)

	require.NoError(t, p.PurgeAll(t.Context(), p.queues.nearSubject(b, "k")))
	h, err = p.keyHolder(t.Context(), "key")
	require.NoError(t, err)
	require.False(t, h.alive)
}

// A bucket stays open though the consumer of its queue, on a server that is behind, knows of nothing that
// waits there. Else its jobs would be taken to have ended until they run.
func TestConsumerBehind(t *testing.T) {
	t.Parallel()
	p := newPart(t)
	now := p.Now()
	b := p.nearOf(now)
	r := recordAt("a", now, now)
	require.NoError(t, p.Write(t.Context(), p.mark(p.nearMark(b-9)))) // sequence 1
	require.NoError(t, p.insertOne(t.Context(), r))
	late := &natsjs.ConsumerInfo{AckFloor: natsjs.SequenceInfo{Stream: 1}}
	late.Config.FilterSubject = p.queues.nearSubject(b, "k")
	p.LearnReplicas(3)
	f := newFetcher(p, newWorker(newEngine("default", []*part{p}, nil), driver.WorkConfig{}), nil)
	_, all, err := f.endedBy(t.Context(), late)
	require.NoError(t, err)
	require.False(t, all)

	require.NoError(t, p.PurgeAll(t.Context(), p.queues.nearSubject(b, "k")))
	last, all, err := f.endedBy(t.Context(), late)
	require.NoError(t, err)
	require.True(t, all)
	require.Equal(t, late.AckFloor.Stream, last)
}
