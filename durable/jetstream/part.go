package jetstream

import (
	"crypto/rand"

	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// part is a partition: one stream, and the types that read and write it. It decides nothing itself, and has no lock. All
// of these types share the buckets. A type has those that it needs by name, and none that is above it.
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
	made      bool // by this engine

	leases *leases
}

// newPart returns a partition of which nothing is read yet.
func (c *config) newPart(nc *stream.Conn, d *stream.Denials, name string, number int) *part {
	st := stream.New(nc, d, c.api(), name, c.Version)
	st.Shift = c.Shift
	b := &buckets{Stream: st, subjects: subjects{root: name, number: number}, staleAge: c.StaleAge, nonce: rand.Text()}
	st.Landmarks, st.Drop = b.subject("c."), []func(){func() { b.learn(bottom) }} // read before the next poll, or after a conflict
	a := &admission{buckets: b, local: c.Own != nil}
	st.Room = a.makeRoom
	k, q := &keys{&finder{b}}, newQueues(b)
	r := &records{b, q}
	is := newInserts(k, r, a)
	p := &part{
		keys: k, admission: a, queues: q, records: r, quotas: newQuotas(b), inserts: is,
		changes: &changes{k, r, a}, schedules: &schedules{k, is}, listings: &listings{k.finder, q},
		leases: newLeases(b),
	}
	return p
}
