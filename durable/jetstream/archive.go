package jetstream

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"time"

	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// A snapshot that a server makes is not of one moment. The server reads message by message
// up to the last one at its begin. A message that is replaced or removed meanwhile may be
// missing, and its replacement is missing, too: the snapshot would lack jobs that were
// moved, and could have a claim without its permit.
//
// So a backup reads the stream itself, in order, up to a message that it writes for that. A
// message that exists at that moment has been read, since it existed at its turn. A message
// that was removed after its turn is also in the backup. That does no harm, since its
// replacement comes later in the order. Only a job and its status are removed without a
// replacement, in this order, when a bucket closes. While the message b exists no status is
// removed (close.go), so each job is read with its status.
//
// A backup has the format of the snapshots of servers from version 2.15 on, which restore it.

// storedHeader returns the stored part of a message's header, in the server's format.
func storedHeader(m *stream.Message) []byte {
	if m.TTL == "" {
		return nil
	}
	return []byte("NATS/1.0\r\nNats-TTL: " + m.TTL + "\r\n\r\n")
}

// archive writes messages as a server does.
type archive struct {
	w   io.Writer
	err error // the first
}

// open writes the head of the archive. A restore does not use the rest of the state.
func (a *archive) open(state json.RawMessage) {
	var s struct {
		Bytes uint64 `json:"bytes"`
		First uint64 `json:"first_seq"`
		Last  uint64 `json:"last_seq"`
	}
	if a.err = json.Unmarshal(state, &s); a.err != nil {
		return
	}
	s.First = max(s.First, 1) // or it does not say where the first message goes
	data, err := json.Marshal(s)
	if a.err = err; err == nil {
		_, a.err = io.WriteString(a.w, "NATSARC1")
	}
	a.add("state.json", 0, time.Now(), nil, data)
}

// add writes an entry. One without anything is the end.
func (a *archive) add(name string, seq uint64, at time.Time, header, data []byte) {
	if a.err != nil {
		return
	}
	nanos := int64(0)
	if !at.IsZero() {
		nanos = at.UnixNano()
	}
	entry := binary.AppendUvarint(nil, uint64(len(name)))
	entry = binary.AppendVarint(entry, nanos)
	for _, n := range []uint64{seq, uint64(len(header)), uint64(len(data))} {
		entry = binary.AppendUvarint(entry, n)
	}
	entry = append(append(append(entry, name...), header...), data...)
	_, a.err = a.w.Write(entry)
}
