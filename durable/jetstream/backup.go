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

	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// A backup has a directory for each stream, with these files, as the NATS command makes
// them.
const (
	metaFile = "backup.json"   // what the server says of the stream; written last
	dataFile = "stream.tar.s2" // what is in it
)

const (
	chunkSize      = 128 << 10
	silenceTimeout = time.Minute // of a server that makes a backup, or takes one
)

// backup is what is in metaFile, and what a server is told to restore.
type backup struct {
	Config map[string]any  `json:"config"`
	State  json.RawMessage `json:"state"`
}

// Backup writes a queue to a directory, which it makes: each stream as it is at one
// moment, while the queue works on. Workers of a restored queue begin where the queue was
// then; see BACKUP.md. It uses the options Queue and Domain. It returns ErrNoQueue if the
// queue does not exist, and an error if the directory has a backup of it. After an error
// the directory is of no use.
func Backup(ctx context.Context, nc *nats.Conn, dir string, opts ...Option) error {
	c := backupConfig("Backup", nc, opts)
	d := watch(nc)
	for i, n := 0, 1; i < n; i++ {
		stream := fmt.Sprintf("TW_%s_%d", c.queue, i)
		b, err := c.backUp(ctx, d, stream, filepath.Join(dir, stream))
		if err != nil {
			return fmt.Errorf("jetstream: Backup: stream %s: %w", stream, err)
		}
		n = b.partitions()
	}
	return nil
}

// Restore makes a queue from a directory that Backup has written, on a server or cluster
// that has no queue of the name. The option Queue must be the name of the original, and
// Replicas may differ from it. It also uses Domain. After an error, delete the streams
// that it has made.
func Restore(ctx context.Context, nc *nats.Conn, dir string, opts ...Option) error {
	c := backupConfig("Restore", nc, opts)
	d := watch(nc)
	for i, n := 0, 1; i < n; i++ {
		stream := fmt.Sprintf("TW_%s_%d", c.queue, i)
		b, err := c.restore(ctx, d, stream, filepath.Join(dir, stream))
		if err != nil {
			return fmt.Errorf("jetstream: Restore: stream %s: %w", stream, err)
		}
		n = b.partitions()
	}
	return nil
}

func backupConfig(name string, nc *nats.Conn, opts []Option) *config {
	if nc == nil {
		panic(fmt.Sprintf("jetstream: %s: nil connection", name))
	}
	c := &config{queue: "default"}
	for _, opt := range opts {
		if opt == nil {
			panic(fmt.Sprintf("jetstream: %s: nil Option", name))
		}
		opt(c)
	}
	return c
}

// partitions returns over how many streams the queue is spread.
func (b *backup) partitions() int {
	metadata, _ := b.Config["metadata"].(map[string]any)
	text, _ := metadata[metaPartitions].(string)
	n, _ := strconv.Atoi(text)
	return n
}

func (c *config) backUp(ctx context.Context, d *denials, stream, dir string) (b backup, err error) {
	ctx, stop := d.during(ctx, api(stream))
	defer stop()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return b, err
	}
	f, err := os.OpenFile(filepath.Join(dir, dataFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return b, err
	}
	defer f.Close()
	if b, err = c.receive(ctx, d.nc, stream, f); err != nil {
		return b, denied(ctx, err)
	}
	meta, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return b, err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return b, err
	}
	return b, os.WriteFile(filepath.Join(dir, metaFile), meta, 0o600)
}

// receive has the server send a stream, and acknowledges each chunk.
func (c *config) receive(ctx context.Context, nc *nats.Conn, stream string, to io.Writer) (b backup, err error) {
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return b, err
	}
	defer sub.Unsubscribe()
	if err := sub.SetPendingLimits(-1, -1); err != nil { // the server bounds what is under way
		return b, err
	}
	request := map[string]any{"deliver_subject": sub.Subject, "no_consumers": true, "jsck": true, "chunk_size": chunkSize}
	if err := c.call(ctx, nc, c.api()+"STREAM.SNAPSHOT."+stream, request, &b); err != nil {
		return b, err
	}
	for {
		try, cancel := context.WithTimeout(ctx, silenceTimeout)
		m, err := sub.NextMsgWithContext(try)
		cancel()
		if err != nil {
			return b, err
		}
		if len(m.Data) == 0 {
			if status := m.Header.Get("Status"); status != "" && status != "204" {
				return b, fmt.Errorf("%w: %s %s", driver.ErrStorage, status, m.Header.Get("Description"))
			}
			return b, nil
		}
		if _, err := to.Write(m.Data); err != nil {
			return b, err
		}
		if m.Reply != "" {
			if err := m.Respond(nil); err != nil {
				return b, err
			}
		}
	}
}

func (c *config) restore(ctx context.Context, d *denials, stream, dir string) (b backup, err error) {
	ctx, stop := d.during(ctx, api(stream))
	defer stop()
	meta, err := os.ReadFile(filepath.Join(dir, metaFile))
	if err == nil {
		err = json.Unmarshal(meta, &b)
	}
	if err != nil {
		return b, err
	}
	if b.Config["name"] != stream {
		return b, fmt.Errorf("%w: it is a backup of %v", driver.ErrInvalid, b.Config["name"])
	}
	if slices.ContainsFunc(c.asked, func(a asked) bool { return a.name == "Replicas" }) {
		b.Config["num_replicas"] = c.replicas
	}
	f, err := os.Open(filepath.Join(dir, dataFile))
	if err != nil {
		return b, err
	}
	defer f.Close()
	if err := c.send(ctx, d.nc, stream, b, f); err != nil {
		return b, denied(ctx, err)
	}
	return b, nil
}

// send has the server take a stream, chunk by chunk. An empty one is the end.
func (c *config) send(ctx context.Context, nc *nats.Conn, stream string, b backup, from io.Reader) error {
	var to struct {
		Subject string `json:"deliver_subject"`
	}
	if err := c.call(ctx, nc, c.api()+"STREAM.RESTORE."+stream, b, &to); err != nil {
		return err
	}
	chunk := make([]byte, chunkSize)
	for {
		n, err := io.ReadFull(from, chunk)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
			return err
		}
		if err := c.askOnce(ctx, nc, to.Subject, chunk[:n], nil); err != nil || n == 0 {
			return err
		}
	}
}

func (c *config) call(ctx context.Context, nc *nats.Conn, subject string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	return c.askOnce(ctx, nc, subject, body, answer)
}

// askOnce asks once, and reads the answer, which may be empty.
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
	var failed struct {
		Error *apiError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &failed); err != nil {
		return err
	}
	if failed.Error != nil && failed.Error.ErrCode == codeNoStream {
		return fmt.Errorf("%w: %q", ErrNoQueue, c.queue)
	}
	if failed.Error != nil || answer == nil {
		return failed.Error.err()
	}
	return json.Unmarshal(m.Data, answer)
}

const codeNoStream = 10059
