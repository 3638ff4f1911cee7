package jetstream

import (
	"crypto/rand"

	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// part is a partition: one stream, and the types that read and write it. It decides nothing itself,
// and has no lock: each type below has the lock of its own story, or none.
//
// All types share one *buckets, so they agree on the stream's clock and on the watermark. A type
// names those that it needs, and none that is above it in the list of files in doc.go.
//
// No commit covers two partitions. So a job, its key, its schedule and its permits are all in one,
// and only the limits and pauses of the whole queue are in the first.
type part struct {
	*keys
	admission *admission
	queues    *queues
	records   *records
	quotas    *quotas
	changes   *changes
	inserts   *inserts
	schedules *schedules
	listings  *listings
	leases    *leases

	made bool // This engine has made the stream.
}

// newPart returns a partition of which nothing is read yet, not even its geometry. It sends no
// request: open and backUp do.
//
// The watermark is forgotten when the stream went back. If it stayed too high, marks would be
// written above the stored one without raising it, and other processes would insert there in vain.
// The next poll or the next conflict reads it again; until then bottom costs at most one refused
// commit.
func (c *config) newPart(nc *stream.Conn, d *stream.Denials, name string, number int) *part {
	st := stream.New(nc, d, c.api(), name, c.Version)
	st.Shift = c.Shift
	b := &buckets{Stream: st, subjects: subjects{root: name, number: number}, staleAge: c.StaleAge, nonce: rand.Text()}
	st.Landmarks, st.Drop = b.subject("c."), []func(){func() { b.learn(bottom) }}
	a := &admission{buckets: b, local: c.Own != nil}
	st.Room = a.makeRoom
	k, q := &keys{&finder{b}}, newQueues(b)
	r := &records{b, q}
	is := newInserts(k, r, a)
	return &part{
		keys: k, admission: a, queues: q, records: r, quotas: newQuotas(b), inserts: is,
		changes: &changes{k, r, a}, schedules: &schedules{k, is}, listings: &listings{k.finder, q},
		leases: newLeases(b),
	}
}
