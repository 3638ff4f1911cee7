package jetstream

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// lateTry is an Add whose first try lies in a server that is frozen, and comes when its bucket is closed.
type lateTry struct {
	name      string
	due       time.Duration
	displaced bool // the bucket of its time was closed before
	repeated  bool // another try was stored, and has ended
}

// A first try that comes when a repeat of it has run, and that is forgotten, is not a second job. One that was
// not repeated runs.
func TestLateFirstTry(t *testing.T) {
	t.Parallel()
	for _, c := range []lateTry{
		{"near", 0, false, true}, {"displaced", 0, true, true}, {"far", 30 * time.Second, false, true},
		{"near, not repeated", 0, false, false}, {"far, not repeated", 30 * time.Second, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, newPart(t, soon))
		})
	}
}

func (c lateTry) run(t *testing.T, p *part) {
	p.LearnReplicas(3) // the only server leads
	now := p.Now()
	r := recordAt("x", now.Add(c.due), now)
	if c.displaced {
		closeBucket(t, p, p.nearOf(r.Due)+1)
	}
	w := newWorker(newEngine("default", []*part{p}, nil), driver.WorkConfig{Name: "w", Lease: time.Minute, Kinds: driver.NewKindSet([]string{r.Kind})})
	f := newFetcher(p, w, nil)
	in := p.inserts.insertion(&r)
	first := append(stream.Group(nil), in.group...)
	if c.displaced {
		first[0].Last = nil // the forward's tombstone lasts for a minute
	}
	bucket, version := p.openFor(r.Due), 0
	if c.displaced {
		version = 1
	}
	far := p.farOf(bucket)
	if in.repeat(p.buckets); c.repeated {
		require.NoError(t, p.inserts.insertGroups(t.Context(), []*inserting{in})[0])
		at := location{id: r.ID, bucket: bucket, version: version}
		require.NoError(t, p.Write(t.Context(), stream.Write{Subject: p.statusSubject(at), Data: status{fate: done, token: "t"}.encode(), Last: stream.Seq(0)}))
		require.NoError(t, p.PurgeAll(t.Context(), p.queueSubject(bucket, "*")))
		require.NoError(t, p.PurgeAll(t.Context(), p.farSubject(far)))
	}
	ok, err := p.markClosed(t.Context(), p.farMark(far), func(wm *watermark) { wm.far = max(wm.far, far) })
	require.NoError(t, err)
	require.True(t, ok)
	closeBucket(t, p, bucket)
	ok, err = f.closer.forget(t.Context(), bucket)
	require.NoError(t, err)
	require.True(t, ok)

	require.NoError(t, p.Write(t.Context(), first...))
	subject := first[len(first)-1].Subject
	require.NoError(t, f.consumer(t.Context(), "c", subject))
	var held []*driver.Delivery
	_, err = p.Pull("c", stream.PullRequest{Batch: 1, MaxBytes: readSize, Expires: time.Minute}, func(msgs []*nats.Msg) {
		for _, m := range msgs {
			h, err := p.deliveryOf(m)
			require.NoError(t, err)
			held = append(held, h)
		}
	})
	require.NoError(t, err)
	require.Len(t, held, 1)
	if _, _, near := p.parseNear(subject); near {
		want := map[bool]driver.ClaimStatus{true: driver.Gone, false: driver.Granted}[c.repeated]
		require.Equal(t, want, w.Claim(t.Context(), held)[0].Status)
		return
	}
	require.NoError(t, f.mover.moveLate(t.Context(), held[0].Claim.(*handle), &held[0].Record))
	info, err := p.Info(t.Context(), p.subject("q.>"))
	require.NoError(t, err)
	require.Equal(t, c.repeated, len(info.Subjects) == 0, "stored anew")
	require.Eventually(t, func() bool {
		_, all, err := f.ended(t.Context(), "c")
		return err == nil && all
	}, 2*time.Minute, 10*time.Millisecond, "it is acknowledged, so that the bucket can be closed")
}

// A job whose Add was repeated runs, though it waits for longer than a mark lasts, or came right before its bucket
// was marked.
func TestRepeatedJobRuns(t *testing.T) {
	t.Parallel()
	p := newPart(t, StaleAge(0))
	p.LearnReplicas(3)
	now := p.Now()
	r := recordAt("x", now, now)
	in := p.inserts.insertion(&r)
	first := append(stream.Group(nil), in.group...)
	in.repeat(p.buckets)
	require.NoError(t, p.inserts.insertGroups(t.Context(), []*inserting{in})[0])
	stored := func() uint64 {
		m, err := p.Last(t.Context(), first[len(first)-1].Subject)
		require.NoError(t, err)
		return m.Seq
	}
	guarded := stored()
	require.NoError(t, p.Write(t.Context(), first...))
	late := stored()
	require.Greater(t, late, guarded)
	w := newWorker(newEngine("default", []*part{p}, nil), driver.WorkConfig{})
	runs := func(message uint64) {
		hd := &handle{p: p.buckets, at: location{id: r.ID, bucket: p.nearOf(r.Due)}, since: now, seq: message, record: &r}
		hd.status = status{fate: claimed, token: "t", worker: "w", attempt: 1}
		var err error
		hd.status.seq, err = p.WriteSeq(t.Context(), stream.Write{Subject: p.statusSubject(hd.at), Data: hd.status.encode(), Last: stream.Seq(0)})
		require.NoError(t, err)
		require.Equal(t, driver.Granted, w.claimer.confirm(t.Context(), p, &driver.Delivery{Record: r, Claim: hd}, p.stillOpen(t.Context(), hd)).Status)
		require.NoError(t, p.PurgeAll(t.Context(), p.statusSubject(hd.at)))
	}
	runs(guarded)
	runs(late)
	closeBucket(t, p, p.nearOf(r.Due))
	runs(guarded)
}

// A server that was killed may have jobs again that were removed with their bucket, and not their statuses: NATS 2.15
// has them when a whole block of its file had become empty, and tombstones of older blocks are in it. They do not
// run again.
func TestRemovalTakenBack(t *testing.T) {
	t.Parallel()
	for name, far := range map[string]bool{"near": false, "far": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			removalTakenBack(t, far)
		})
	}
}

// removalTakenBack removes the jobs of a near bucket, or of its far one, which is never marked: they were canceled.
func removalTakenBack(t *testing.T, far bool) {
	srv := newServer(t)
	p := connectPart(t, srv)
	now := p.Now()
	first := p.nearOf(now)
	add := func(name string, due time.Time, subject string) {
		for i := range 100 { // 100 KB each: more than a block of the file
			r := recordAt(name+strconv.Itoa(i), due, now)
			r.Payload = make([]byte, 100_000)
			require.NoError(t, p.Write(t.Context(), stream.Write{Subject: subject, Data: encode(&r, nil)}))
		}
	}
	closing := p.start(first + 1)
	b := p.nearOf(closing)
	subject, mark := p.queueSubject(b, "_"), p.nearMark(b)
	if far {
		subject, mark = p.farSubject(p.farOf(b)), p.farMark(p.farOf(b))
	}
	add("a", now, p.queueSubject(first, "_"))
	half, err := p.Info(t.Context(), p.queueSubject(first, "*"))
	require.NoError(t, err)
	require.NoError(t, p.Purge(t.Context(), p.Backs(), p.queueSubject(first, "*"), half.Last-50), "tombstones in the second block")
	add("b", closing, subject)
	require.NoError(t, p.PurgeAll(t.Context(), p.queueSubject(first, "*")))
	closeBucket(t, p, b)
	require.NoError(t, p.PurgeAll(t.Context(), subject))
	ok, err := newFetcher(p, newWorker(newEngine("default", []*part{p}, nil), driver.WorkConfig{}), nil).closer.forget(t.Context(), b)
	require.NoError(t, err)
	require.True(t, ok)
	late := recordAt("late", closing, now)
	require.NoError(t, p.Write(t.Context(), stream.Write{Subject: subject, Data: encode(&late, nil)}), "as on several replicas")

	killed := t.TempDir()
	require.NoError(t, os.CopyFS(killed, os.DirFS(srv.StoreDir())))
	p = connectPart(t, serverOn(t, killed))
	back := 0
	for page, err := range p.Pages(t.Context(), subject, 1, time.Time{}) {
		require.NoError(t, err)
		for _, m := range page {
			r, err := decode(m.Data)
			require.NoError(t, err)
			back++
			hd := &handle{p: p.buckets, at: location{id: r.ID, bucket: b}, since: time.Now(), seq: m.Seq, record: &r}
			there, err := p.reopened(t.Context(), hd, mark)
			require.NoError(t, err)
			require.Equal(t, r.ID == "late", there, r.ID)
		}
	}
	if require.Positive(t, back); back == 1 {
		t.Skip("this server removes for good")
	}
}
