package jetstream

import (
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// write is a message to be stored, and on which condition.
type write struct {
	subject string
	data    []byte

	// The last message of guard, or of the subject if guard is empty, has to have the
	// sequence last, 0 for none. Nil: no condition.
	last  *uint64
	guard string

	rollup bool          // it replaces all earlier messages of the subject
	ttl    time.Duration // 0: for ever
}

func seq(n uint64) *uint64 { return &n }

func (w *write) msg() *nats.Msg {
	m := nats.NewMsg(w.subject)
	m.Data = w.data
	if w.last != nil {
		m.Header.Set("Nats-Expected-Last-Subject-Sequence", strconv.FormatUint(*w.last, 10))
		if w.guard != "" {
			m.Header.Set("Nats-Expected-Last-Subject-Sequence-Subject", w.guard)
		}
	}
	if w.rollup {
		m.Header.Set("Nats-Rollup", "sub")
	}
	if w.ttl > 0 {
		m.Header.Set("Nats-TTL", strconv.FormatInt(ttlSeconds(w.ttl), 10))
	}
	return m
}

// longestTTL is such that the server's sum of it and the time does not overflow: that is in
// nanoseconds, which end in the year 2262.
const longestTTL = 100 * 365 * 24 * time.Hour

// ttlSeconds returns a TTL, which is positive, in whole seconds, rounded up.
func ttlSeconds(d time.Duration) int64 {
	return int64((min(d, longestTTL) + time.Second - 1) / time.Second)
}

// group is what is written together or not at all.
type group []write

func (g group) size() (n int) {
	for i := range g {
		n += len(g[i].data) + 256
	}
	return n
}
