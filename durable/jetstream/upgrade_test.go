package jetstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/testservers/upgradetest"
)

// partOfVersion returns a part whose stream says that an older version has written it.
func partOfVersion(t *testing.T, version string) (*part, natsjs.JetStream) {
	p := newPart(t, soon)
	js, err := natsjs.New(p.nc.nc)
	require.NoError(t, err)
	stream, err := js.Stream(t.Context(), p.stream)
	require.NoError(t, err)
	config := stream.CachedInfo().Config
	config.Metadata[metaVersion] = version
	_, err = js.UpdateStream(t.Context(), config)
	require.NoError(t, err)
	return p, js
}

// Recurring jobs of version 2, which had neither plans nor schedules nor kinds in subjects,
// go on.
func TestSeriesOfVersion2(t *testing.T) {
	p, js := partOfVersion(t, "2")
	now := p.now().Truncate(time.Microsecond)
	stored := map[string]durable.Ref{}
	for _, name := range []string{upgradetest.Due, upgradetest.Claimed, upgradetest.Far, upgradetest.Stored} {
		due := now
		if name == upgradetest.Far {
			due = now.Add(time.Hour)
		}
		sum := sha256.Sum256([]byte(name))
		r := recordAt(hex.EncodeToString(sum[:8])+"-"+strconv.FormatInt(due.UnixNano(), 36), due, now)
		r.Kind, r.Key, r.Schedule = upgradetest.Kind, "every/"+name, name
		b := p.nearOf(due)
		w := write{subject: p.queueSubject(b, ""), data: encode(&r)}
		if name == upgradetest.Far {
			w.subject = p.farSubject(p.farOf(b))
		}
		require.NotContains(t, string(w.data), "plan")
		require.NoError(t, p.write(t.Context(), w, p.keyWrite(&r, 0)))
		if name == upgradetest.Claimed {
			s := status{fate: claimed, token: "t", worker: "one-that-is-no-more", attempt: 1}
			require.NoError(t, p.write(t.Context(), write{subject: p.fateSubject(location{id: r.ID, bucket: b}), data: s.encode()}))
		}
		stored[name] = p.refOf(&r)
	}
	upgradetest.Series(t, func() driver.Engine { return connectPartTo(t, p) }, stored)
	info, err := js.Stream(t.Context(), p.stream)
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(wireVersion), info.CachedInfo().Config.Metadata[metaVersion])
}

// What version 3 has stored knows no limits: a job that waits, one that a worker has claimed
// that is no more, and a mark that says so. Under a limit that is set then they run, no more
// at once than that lets.
func TestLimitsOfVersion3(t *testing.T) {
	p, js := partOfVersion(t, "3")
	now := p.now().Truncate(time.Microsecond)
	const jobs = 6
	for i := range jobs {
		r := recordAt("j"+strconv.Itoa(i), now, now)
		require.NoError(t, p.insertOne(t.Context(), r))
		at := location{id: r.ID, bucket: p.nearOf(r.Due)}
		text := ""
		switch i {
		case 1:
			text = "run t one-that-is-no-more 1 0"
		case 2:
			text = "run t one-that-is-no-more 2 0 1 true"
		case 3:
			text = "free t - 1 0 1 false"
		}
		if text != "" {
			require.NoError(t, p.write(t.Context(), write{subject: p.fateSubject(at), data: []byte(text)}))
		}
	}
	q, err := durable.Open(t.Context(), connectPartTo(t, p), durable.WithLease(time.Minute))
	require.NoError(t, err)
	defer q.Close()
	info, err := js.Stream(t.Context(), p.stream)
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(wireVersion), info.CachedInfo().Config.Metadata[metaVersion], "an older worker would exceed a limit")
	require.NoError(t, q.SetLimit(t.Context(), "one", durable.Limit{Running: 1}))
	e := connectPartTo(t, p)
	other, err := durable.Open(t.Context(), e, durable.WithLease(time.Minute))
	require.NoError(t, err)
	defer other.Close()
	inside := make(chan bool, 1)
	ran := make(chan int, 2*jobs)
	handle := func(_ context.Context, a *durable.Attempt) error {
		select {
		case inside <- true:
		default:
			t.Error("two run at once")
		}
		time.Sleep(20 * time.Millisecond)
		if used, err := e.Usage(t.Context()); err != nil || len(used) != 1 || used[0].Taken != 1 {
			t.Errorf("it has no place: %+v, %v", used, err)
		}
		<-inside
		ran <- a.Number
		return nil
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 2)
	for _, q := range []*durable.Queue{q, other} {
		q.Handle("k", handle)
		go func() { done <- q.Run(ctx) }()
	}
	attempts := 0
	for range jobs {
		attempts += <-ran
	}
	stop()
	require.NoError(t, errors.Join(<-done, <-done))
	require.Equal(t, 1+1+3+2+1+1, attempts, "of an exact claim the attempt counts, and what has begun before")
	for u, err := range q.Limits(t.Context()) {
		require.NoError(t, err)
		require.Zero(t, u.Taken)
	}
}

// Workers of earlier releases are listed, with how many kinds they have, as far as they say so.
func TestWorkersOfEarlierReleases(t *testing.T) {
	p := newPart(t, soon)
	for name, says := range map[string]string{
		"host_12_kf12oi_OLDER": `{"lease":30000000000,"kinds":["aaaaaaaa","bbbbbbbb"]}`,
		"oldest":               `{"lease":30000000000}`,
	} {
		require.NoError(t, p.write(t.Context(), write{subject: p.workerSubject(name), data: []byte(says)}))
	}
	q, err := durable.Open(t.Context(), connectPartTo(t, p))
	require.NoError(t, err)
	defer q.Close()
	all, err := q.Workers(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, "host 12  [] 2", fmt.Sprint(all[0].Host, " ", all[0].Process, " ", all[0].Label, " ", all[0].Kinds, " ", all[0].AllKinds))
	require.Equal(t, " 0  [] 0", fmt.Sprint(all[1].Host, " ", all[1].Process, " ", all[1].Label, " ", all[1].Kinds, " ", all[1].AllKinds))
}
