package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// A backup has a directory for each stream, with these files, as the NATS command makes
// them.
const (
	metaFile = "backup.json"   // the server's description of the stream; written last
	dataFile = "stream.tar.s2" // its messages: archive.go
)

const (
	// A server has five seconds for the messages that it gets at one time. It writes each message
	// to its disk by itself, where sync_interval is always.
	chunkSize = 8 << 10
	blockSize = 16 << 10 // of what is compressed by itself, and so comes at one time

	silenceTimeout = time.Minute // of a server that takes a backup
)

// backup is the content of metaFile, and of the request to restore. The server's
// description is kept as it was read, with the fields that this package does not know.
type backup struct {
	Config map[string]any  `json:"config"`
	State  json.RawMessage `json:"state"`
}

// Backup writes a queue to a directory, which it makes: each stream as it is at one
// moment, while the queue works on. Workers of a restored queue begin where the queue was
// then; see BACKUP.md. It uses the options WithQueue and WithDomain. It returns ErrNoQueue if the
// queue does not exist, durable.ErrVersion if a newer version of this package has stored it,
// and an error if the directory has a backup of it. After an error the directory is of no use.
func Backup(ctx context.Context, nc *nats.Conn, dir string, opts ...Option) error {
	c := newConfig("Backup", nc, opts)
	return c.eachStream(ctx, "Backup", nc, dir, c.backUp)
}

// Restore makes a queue from a directory that Backup has written, on a server or cluster
// that has no queue of the name. The option WithQueue must be the name of the original, and
// WithReplicas may differ from it. It also uses WithDomain. It needs NATS 2.15. It returns
// durable.ErrVersion for a backup of a newer version. After an error it deletes the stream
// that it has restored in part. Streams of other partitions may remain: delete them.
func Restore(ctx context.Context, nc *nats.Conn, dir string, opts ...Option) error {
	c := newConfig("Restore", nc, opts)
	if err := awaitServer(ctx, nc); err != nil {
		return fmt.Errorf("jetstream: Restore: %w", err)
	}
	if err := stream.CheckServer(nc, stream.LeastRestore); err != nil && c.Domain == "" {
		return fmt.Errorf("jetstream: Restore: %w", err)
	}
	return c.eachStream(ctx, "Restore", nc, dir, c.restore)
}

// eachStream calls f for one stream of the queue after the other; the description of the
// first says how many there are. No two of them are of one moment, and need not be: a
// commit covers one stream, and no job is in two. An error ends it, and leaves what was
// done before. A denial is the error, though the request that met it has only waited in
// vain.
func (c *config) eachStream(ctx context.Context, call string, nc *nats.Conn, dir string,
	f func(ctx context.Context, d *stream.Denials, name, dir string) (backup, error)) error {
	d := stream.WatchDenials(nc)
	for i, n := 0, 1; i < n; i++ {
		name := streamName(c.Queue, i)
		during, stop := d.During(ctx, stream.APIOf(name))
		b, err := f(during, d, name, filepath.Join(dir, name))
		stop()
		if err != nil {
			return fmt.Errorf("jetstream: %s: stream %s: %w", call, name, stream.Denied(during, err))
		}
		n, _ = strconv.Atoi(b.metadata(metaPartitions))
	}
	return nil
}

// metadata returns an entry of the stream's metadata, or "".
func (b *backup) metadata(name string) string {
	all, _ := b.Config["metadata"].(map[string]any)
	text, _ := all[name].(string)
	return text
}

// backUp writes one stream to a directory of its own. The description is written last, when
// the messages are on the disk: a backup that was cut off has none, and Restore refuses it.
// Only the owner may read the files, since they have the payloads. A file that is there is
// an error, since it may be the only copy.
func (c *config) backUp(ctx context.Context, d *stream.Denials, name, dir string) (b backup, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return b, err
	}
	f, err := os.OpenFile(filepath.Join(dir, dataFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return b, err
	}
	defer f.Close()
	p := c.newPart(stream.NewConn(d.NC, ctx), d, name, 0)
	if b, err = (&copier{p.buckets}).copyTo(ctx, f); err != nil {
		return b, err
	}
	meta, err := json.MarshalIndent(b, "", "  ")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return b, err
	}
	return b, os.WriteFile(filepath.Join(dir, metaFile), meta, 0o600)
}

// restore makes one stream anew. All that can be compared is compared before the first
// request to the server: the name, which is in each subject, and the version. The number of
// replicas is that of the original, except if the program gives another.
//
// The claims in it are taken over after a lease, as those of workers that died: the
// heartbeats in it are old.
func (c *config) restore(ctx context.Context, d *stream.Denials, name, dir string) (b backup, err error) {
	meta, err := os.ReadFile(filepath.Join(dir, metaFile))
	if err == nil {
		err = json.Unmarshal(meta, &b)
	}
	if err != nil {
		return b, err
	}
	if b.Config["name"] != name {
		return b, fmt.Errorf("%w: this is a backup of the stream %v", driver.ErrInvalid, b.Config["name"])
	}
	if _, err := stream.VersionOf(b.metadata(stream.MetaVersion), wireVersion); err != nil {
		return b, err
	}
	if slices.Contains(c.Given, replicasName) {
		b.Config["num_replicas"] = c.Replicas
	}
	f, err := os.Open(filepath.Join(dir, dataFile))
	if err != nil {
		return b, err
	}
	defer f.Close()
	return b, c.send(ctx, d.NC, name, b, f)
}

// send sends a stream to the server, chunk by chunk. If it fails, the server keeps what it
// has, and workers would take that for all: so the stream is deleted, also when ctx has
// ended. If that fails, too, the error says so.
func (c *config) send(ctx context.Context, nc *nats.Conn, name string, b backup, from io.Reader) error {
	var to struct {
		Subject string `json:"deliver_subject"`
	}
	request, err := json.Marshal(b)
	if err != nil {
		return err
	}
	if err := c.askOnce(ctx, nc, c.api()+"STREAM.RESTORE."+name, request, &to); err != nil {
		return err
	}
	err = c.sendAll(ctx, nc, to.Subject, from)
	if err != nil { // the server keeps what it has, and workers would take that for all
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), stream.AnswerTimeout)
		defer cancel()
		if deleteErr := c.askOnce(after, nc, c.api()+"STREAM.DELETE."+name, nil, nil); !errors.Is(deleteErr, ErrNoQueue) {
			err = errors.Join(err, deleteErr)
		}
	}
	return err
}

// sendAll sends the chunks. An empty one is the end. Each is answered before the next is
// sent, so the server decides how fast it goes, and memory is needed for one chunk. An
// answer that is lost ends the restore.
func (c *config) sendAll(ctx context.Context, nc *nats.Conn, to string, from io.Reader) error {
	chunk := make([]byte, chunkSize)
	for {
		n, err := io.ReadFull(from, chunk)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
			return err
		}
		if err := c.askOnce(ctx, nc, to, chunk[:n], nil); err != nil || n == 0 {
			return err
		}
	}
}

// askOnce sends a request once, and reads the answer, which may be empty. It never repeats
// one, as stream.Ask does: a chunk that came twice would be in the stream twice.
func (c *config) askOnce(ctx context.Context, nc *nats.Conn, subject string, body []byte, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, silenceTimeout)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, subject, body)
	if err != nil {
		return err
	}
	if len(m.Data) == 0 {
		return nil
	}
	err = stream.ParseAnswer(m.Data, answer)
	if stream.IsCode(err, stream.CodeNoStream) {
		return fmt.Errorf("%w: %q", ErrNoQueue, c.Queue)
	}
	return err
}

// copier writes a stream to an archive. It has no lock: one goroutine copies. It removes
// nothing, and writes nothing but the message b. Its memory is for a page and a block,
// however large the stream.
type copier struct{ *buckets }

// holdStatuses stores the message b: a backup is under way, and no status is removed. It
// lapses by itself, so a backup that was killed delays removals by backupTTL, and a backup
// that ends says nothing: another one may be under way.
//
// The write of it is also the witness of the end: all that was written before has lower
// sequences.
func (c *copier) holdStatuses(ctx context.Context) (stream.Witness, error) {
	w := stream.Write{Subject: c.backupSubject(), Data: []byte("backup"), Rollup: true, TTL: backupTTL}
	written, err := c.WriteSeq(ctx, w)
	return stream.Witness{Subject: w.Subject, Seq: written}, err
}

// copyTo writes the stream to an archive, and returns its description. The description is
// read first, so the restored stream has the settings and the version that the stream had
// then: Connect raises a version, and never lowers one.
//
// A stream of a newer version is refused, as by Connect: this package may not know what a
// restore of it needs.
func (c *copier) copyTo(ctx context.Context, to io.Writer) (b backup, err error) {
	err = c.Ask(ctx, "STREAM.INFO."+c.Name, nil, &b)
	if stream.IsCode(err, stream.CodeNoStream) {
		err = fmt.Errorf("%w: %q", ErrNoQueue, c.Name)
	}
	if err == nil {
		_, err = stream.VersionOf(b.metadata(stream.MetaVersion), c.Version)
	}
	if err != nil {
		return b, err
	}
	replicas, _ := b.Config["num_replicas"].(float64)
	c.LearnReplicas(max(1, int(replicas)))
	first, err := c.holdStatuses(ctx)
	if err != nil {
		return b, err
	}
	if _, err := c.LastSince(ctx, first, first.Subject, false); err != nil { // the server that answers is up to date
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

// copyAll reads all messages, up to one that it writes itself: nothing else ends a stream
// that is written to. Pages may come from a server that is behind, and a last message that is
// missing shows that. The message b is written again and again while that lasts, since it
// expires with a program that was killed.
//
// It reads each message once, PageSize of them with a request, and keeps one page in
// memory. The messages b are left out: in a restored stream one would stop removals for a
// minute.
func (c *copier) copyAll(ctx context.Context, a *archive) error {
	from, until, held := uint64(1), uint64(0), time.Now()
	for until == 0 || from <= until {
		for page, err := range c.Pages(ctx, c.subject(">"), from, time.Time{}) {
			if err != nil {
				return err
			}
			for _, m := range page {
				if from = m.Seq + 1; until > 0 && from > until {
					return a.err
				}
				if m.Subject != c.backupSubject() {
					a.add(m.Subject, m.Seq, m.Time, storedHeader(&m), m.Data)
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
			c.Wait(ctx, 10*time.Millisecond) // the server may be a moment behind
			continue
		}
		last, err := c.holdStatuses(ctx)
		if err != nil {
			return err
		}
		until = last.Seq
	}
	return nil
}
