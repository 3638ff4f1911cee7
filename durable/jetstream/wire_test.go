package jetstream

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
)

func TestRecordRoundTrip(t *testing.T) {
	at := time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC)
	for _, r := range []driver.Record{
		{ID: "x", Job: driver.Job{Kind: "k", At: at, MaxAttempts: 1}, Due: at, Born: at},
		{ID: "y", Job: driver.Job{Kind: "ä\"\\", Key: "k", Payload: []byte("\n{\n\x00"), At: time.UnixMicro(1), MaxAttempts: 2},
			Due: time.UnixMicro(-5), Born: time.UnixMicro(7), Version: 3, Attempt: 4, Crashes: 2, LastError: "no\nuse", Schedule: "s",
			Errors: []driver.Failure{{At: time.UnixMicro(8).UTC(), Error: "of before"}, {At: time.UnixMicro(9).UTC(), Attempt: 4, Error: "no\nuse"}}},
		{ID: "z", Job: driver.Job{Kind: "k", At: at, MaxAttempts: 1, Lane: "l", Priority: -1, Meta: map[string]string{"a": "\n", "b": ""},
			Timeout: time.Microsecond, Expires: at}, Due: at, Born: at, Schedule: "s", Occurrence: "{\n}"},
	} {
		got, err := decode(encode(&r, nil))
		require.NoError(t, err)
		for _, p := range []*time.Time{&r.Due, &r.Born, &r.At, &r.Expires} {
			if !p.IsZero() {
				*p = p.Local()
			}
		}
		require.Equal(t, r, got)
	}
	for _, bad := range []string{"", "{}", "x\n", "{\"id\":1}\n"} {
		_, err := decode([]byte(bad))
		require.ErrorIs(t, err, driver.ErrStorage, bad)
	}
}

func TestStatusRoundTrip(t *testing.T) {
	for text, s := range map[string]status{
		"done t":                             {fate: done, token: "t"},
		"canceled t . 7":                     {fate: canceled, token: "t", attempt: 7},
		"run t w 7":                          {fate: claimed, token: "t", worker: "w", attempt: 7},
		"run t - 10 0 1":                     {fate: claimed, token: "t", worker: "-", attempt: 10, exact: true},
		"free t . 0 3":                       {fate: freed, token: "t", crashes: 3},
		"moved t . 1 0 0 -30":                {fate: moved, token: "t", attempt: 1, bucket: -30},
		"run t w 1 3 1 0 1.-.0,2.abc.17":     {fate: claimed, token: "t", worker: "w", attempt: 1, crashes: 3, exact: true, permits: []string{"1.-.0", "2.abc.17"}},
		"run t w 1 0 0 0 1.-.0":              {fate: claimed, token: "t", worker: "w", attempt: 1, permits: []string{"1.-.0"}},
		"dead t . 2 1 1 9223372036854775807": {fate: dead, token: "t", attempt: 2, crashes: 1, exact: true, bucket: math.MaxInt64},
	} {
		require.Equal(t, text, string(s.encode()))
		s.seq = 9
		got, err := decodeStatus([]byte(text), 9)
		require.NoError(t, err)
		require.Equal(t, s, got)
	}
	for _, bad := range []string{"", "run", " t", "fly t w 1 2", "run t w x", "run t w 1 x", "run t w 1 2 true", "run t w 1 2 1 x", "run t w 1 2 1 3 a b"} {
		_, err := decodeStatus([]byte(bad), 1)
		require.ErrorIs(t, err, driver.ErrStorage, bad)
	}
}

// A Ref is read as it was written, and any change of it is found.
func TestRef(t *testing.T) {
	a := address{part: 2, bucket: 1 << 40, born: -7, id: "ABC-1_z"}
	ref := a.ref("q")
	got, err := parseRef(ref, "q", 3)
	require.NoError(t, err)
	require.Equal(t, a, got)
	_, err = parseRef(ref, "other", 3)
	require.ErrorIs(t, err, driver.ErrNotFound)
	_, err = parseRef(ref, "q", 2)
	require.ErrorIs(t, err, driver.ErrNotFound)
	for range 1000 {
		b := []byte(ref)
		i := rand.N(len(b))
		if b[i] ^= byte(1 << rand.N(7)); strings.HasPrefix(string(b), "+") || string(b) == string(ref) {
			continue
		}
		_, err := parseRef(driver.Ref(b), "q", 3)
		require.ErrorIs(t, err, driver.ErrNotFound, "%s", b)
	}
}

// A Ref whose sum is right, but that no engine has made, is of no job: above all not one
// that stands for many.
func TestForgedRef(t *testing.T) {
	p := newPart(t)
	now := time.Now().Truncate(time.Microsecond)
	r := driver.Record{ID: "x", Job: driver.Job{Kind: "k", At: now, MaxAttempts: 1}, Due: now, Born: now}
	require.NoError(t, p.insertOne(t.Context(), r))
	e := newEngine("default", []*part{p}, nil)
	a := address{bucket: p.nearOf(now), born: now.UnixMicro(), id: r.ID}
	var refs []driver.Ref
	for _, id := range []string{"*", ">", "", " ", "a b", "x*", "ä", "a\x00", "a\nb", "a/b", strings.Repeat("a", maxID+1), strings.Repeat("a", 1<<20)} {
		a.id = id
		refs = append(refs, a.ref(p.salt))
	}
	for _, s := range []string{"+0.0.0.x", "0.0.0.x.y", "0.00.0.x", "0.A.0.x", "00.0.0.x", "0.-0.0.x", "0..0.x"} {
		refs = append(refs, driver.Ref(s+"."+checksum(p.salt, s)))
	}
	for _, ref := range refs {
		_, err := parseRef(ref, p.salt, 1)
		require.ErrorIs(t, err, driver.ErrNotFound, "%.100q", string(ref))
		require.Less(t, len(err.Error()), 1500)
		oks, errs := e.Cancel(t.Context(), []driver.Ref{ref})
		require.False(t, oks[0], "%.100q", string(ref))
		require.ErrorIs(t, errs[0], driver.ErrNotFound, "%.100q", string(ref))
	}
	s, err := p.status(t.Context(), p.locationOf(p.queues.nearSubject(p.nearOf(r.Due), "k"), &r))
	require.NoError(t, err)
	require.Equal(t, none, s.fate, "the job that is there waits")
}

// Every moment is in one near bucket, which is in one far bucket, also before 1970.
func TestGeometry(t *testing.T) {
	g := geometryOf(defaultBuckets)
	for range 10000 {
		at := time.UnixMicro(rand.Int64N(1<<50) - 1<<49)
		b := g.nearOf(at)
		require.False(t, at.Before(g.start(b)))
		require.True(t, at.Before(g.end(b)))
		far := g.farOf(b)
		require.LessOrEqual(t, far*g.far, at.UnixMicro())
		require.Greater(t, (far+1)*g.far, at.UnixMicro())
		// What goes to a far bucket does so well before that is moved.
		require.False(t, g.isFar(b, g.cascadeAt(far).Add(-time.Minute)))
		require.True(t, g.isFar(b, g.cascadeAt(far).Add(-time.Hour)))
	}
	again, err := parseGeometry(g.String())
	require.NoError(t, err)
	require.Equal(t, g, again)
	_, err = parseGeometry("")
	require.Error(t, err)
}

func TestWrongOptions(t *testing.T) {
	for _, o := range []Option{
		WithQueue(""), WithQueue("a.b"), WithReplicas(0), WithPartitions(0), WithPartitions(1001), WithMaxBytes(1),
		WithBuckets(Buckets{Near: 1}), WithBuckets(Buckets{Near: 2 * time.Second, Far: 3 * time.Second}), WithBuckets(Buckets{Lead: -1}), WithBuckets(Buckets{Settle: -1}), nil,
	} {
		require.Panics(t, func() { Connect(t.Context(), new(nats.Conn), o) })
	}
	require.Panics(t, func() { Connect(t.Context(), nil) })
}
