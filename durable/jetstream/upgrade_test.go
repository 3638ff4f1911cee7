package jetstream

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/internal/upgradetest"
)

// Recurring jobs of version 2, which had neither plans nor schedules nor kinds in subjects,
// go on.
func TestSeriesOfVersion2(t *testing.T) {
	p := newPart(t, soon)
	js, err := natsjs.New(p.nc)
	require.NoError(t, err)
	stream, err := js.Stream(t.Context(), p.stream)
	require.NoError(t, err)
	config := stream.CachedInfo().Config
	config.Metadata[metaVersion] = "2"
	_, err = js.UpdateStream(t.Context(), config)
	require.NoError(t, err)
	now := p.now().Truncate(time.Microsecond)
	stored := map[string]durable.Ref{}
	for _, name := range []string{upgradetest.Due, upgradetest.Claimed, upgradetest.Far, upgradetest.Stored} {
		due := now
		if name == upgradetest.Far {
			due = now.Add(time.Hour)
		}
		sum := sha256.Sum256([]byte(name))
		r := recordAt(hex.EncodeToString(sum[:8])+"-"+strconv.FormatInt(due.UnixNano(), 36), due, now)
		r.Job.Kind, r.Job.Key, r.Series = upgradetest.Kind, "every/"+name, name
		b := p.nearOf(due)
		w := write{subject: p.nearToken(b, ""), data: encode(&r)}
		if name == upgradetest.Far {
			w.subject = p.farSubject(p.farOf(b))
		}
		require.NotContains(t, string(w.data), "plan")
		require.NoError(t, p.write(t.Context(), w, p.keyWrite(&r, 0)))
		if name == upgradetest.Claimed {
			s := status{fate: claimed, token: "t", worker: "one-that-is-no-more", attempt: 1}
			require.NoError(t, p.write(t.Context(), write{subject: p.fateSubject(place{id: r.ID, bucket: b}), data: s.encode()}))
		}
		stored[name] = p.refOf(&r)
	}
	upgradetest.Series(t, func() durable.Engine { return connectPartTo(t, p) }, stored)
	info, err := js.Stream(t.Context(), p.stream)
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(wireVersion), info.CachedInfo().Config.Metadata[metaVersion])
}
