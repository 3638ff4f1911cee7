package stream

import (
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// Write is a message to be stored, and on which condition. The condition is always on one literal
// subject: the server does not check wildcards against writes that are under way. A write that is
// repeated after it was stored is refused if its condition is on its own subject, and is stored as
// a copy if not.
type Write struct {
	Subject string
	Data    []byte

	// The last message of guard, or of the subject if guard is empty, has to have the
	// sequence last, 0 for none. Nil: no condition.
	Last  *uint64
	Guard string

	Rollup bool          // it replaces all earlier messages of the subject
	TTL    time.Duration // 0: for ever
}

// Seq is for Write.Last, where no condition and the sequence 0, that of no message, are two things.
func Seq(n uint64) *uint64 { return &n }

// msg makes a new message each time: a try that was left behind may still be sending the one before,
// and publish adds headers to it.
func (w *Write) msg() *nats.Msg {
	m := nats.NewMsg(w.Subject)
	m.Data = w.Data
	if w.Last != nil {
		m.Header.Set("Nats-Expected-Last-Subject-Sequence", strconv.FormatUint(*w.Last, 10))
		if w.Guard != "" {
			m.Header.Set("Nats-Expected-Last-Subject-Sequence-Subject", w.Guard)
		}
	}
	if w.Rollup {
		m.Header.Set("Nats-Rollup", "sub")
	}
	if w.TTL > 0 {
		m.Header.Set("Nats-TTL", strconv.FormatInt(ttlSeconds(w.TTL), 10))
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

// Group is what is written together or not at all. Commit may send many in one batch, and never
// parts one.
type Group []Write

// size is what a group takes of the store, roughly: 256 bytes for the subject and headers of each
// message. Batches are cut by it, and it is added to Stream.Bytes until the next answer tells.
func (g Group) size() (n int) {
	for i := range g {
		n += len(g[i].Data) + 256
	}
	return n
}
