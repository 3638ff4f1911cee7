package jetstream

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/s2"
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

// backupTTL is the time that statuses stay after the last message b of a backup. No message
// tells the end of a backup, since another one may be under way.
const backupTTL = time.Minute

// isBackedUp reports whether a backup may be under way.
func (b *buckets) isBackedUp(ctx context.Context) (bool, error) {
	m, err := b.last(ctx, b.backupSubject())
	return m.Seq > 0, err
}

// copier writes a stream to an archive. It has no lock: one goroutine copies.
type copier struct{ *buckets }

// holdStatuses stores the message b: a backup is under way, and no status is removed.
func (c *copier) holdStatuses(ctx context.Context) (witness, error) {
	w := write{subject: c.backupSubject(), data: []byte("backup"), rollup: true, ttl: backupTTL}
	written, err := c.writeSeq(ctx, w)
	return witness{w.subject, written}, err
}

// copyTo writes the stream to an archive, and returns its description.
func (c *copier) copyTo(ctx context.Context, to io.Writer) (b backup, err error) {
	err = c.ask(ctx, "STREAM.INFO."+c.name, nil, &b)
	if isCode(err, codeNoStream) {
		err = fmt.Errorf("%w: %q", ErrNoQueue, c.name)
	}
	if err == nil {
		_, err = versionOf(b.metadata(metaVersion), c.version)
	}
	if err != nil {
		return b, err
	}
	if n, _ := b.Config["num_replicas"].(float64); n > 1 {
		c.replicas = int(n)
	} else {
		c.replicas = 1
	}
	first, err := c.holdStatuses(ctx)
	if err != nil {
		return b, err
	}
	if _, err := c.lastSince(ctx, first, first.subject, false); err != nil { // the server that answers is up to date
		return b, err
	}
	compressed := s2.NewWriter(to, s2.WriterBlockSize(blockSize))
	a := &archive{w: compressed}
	a.open(b.State)
	if err := c.copyAll(ctx, a); err != nil {
		return b, err
	}
	a.add("", 0, time.Time{}, nil, nil) // the end
	return b, errors.Join(a.err, compressed.Close())
}

// copyAll reads all messages, up to one that it writes itself.
func (c *copier) copyAll(ctx context.Context, a *archive) error {
	from, until, held := uint64(1), uint64(0), time.Now()
	for until == 0 || from <= until {
		for page, err := range c.pages(ctx, c.subject(">"), from, time.Time{}) {
			if err != nil {
				return err
			}
			for _, m := range page {
				if from = m.Seq + 1; until > 0 && from > until {
					return a.err
				}
				if m.Subject != c.backupSubject() {
					a.add(m.Subject, m.Seq, m.Time, m.header(), m.Data)
				}
			}
			if a.err != nil {
				return a.err
			}
			if time.Since(held) > backupTTL/3 {
				held = time.Now()
				if _, err := c.holdStatuses(ctx); err != nil {
					return err
				}
			}
		}
		if until > 0 {
			c.wait(ctx, 10*time.Millisecond) // the server may be a moment behind
			continue
		}
		last, err := c.holdStatuses(ctx)
		if err != nil {
			return err
		}
		until = last.seq
	}
	return nil
}

// header returns the stored part of a message's header, in the server's format.
func (m *stored) header() []byte {
	if m.ttl == "" {
		return nil
	}
	return []byte("NATS/1.0\r\nNats-TTL: " + m.ttl + "\r\n\r\n")
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
