package embedded

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/minio/highwayhash"
)

// The server does not say when it finds that its files are damaged, and may remove all
// that follows the damage in a file. So the files are checked before it sees them.
//
// A stream's messages are in blocks, msgs/<number>.blk, records one after the other, each
// with a checksum. Every write is synced before the next one begins, so a power cut, or a
// kill, can spoil what was written last and nobody was told of: a record, or the records
// of one atomic batch. Anything else that is not whole is damage, and so is that if the
// store was closed in order; see account.go.

// inspection is what a check has found.
type inspection struct {
	damage []string // what is lost, as a person reads it
	mend   []*block // what can be made readable, with loss
}

func (in *inspection) found(format string, args ...any) {
	in.damage = append(in.damage, fmt.Sprintf(format, args...))
}

// String names the damage, the first few of many.
func (in *inspection) String() string {
	const most = 5
	if n := len(in.damage); n > most {
		return strings.Join(in.damage[:most], "; ") + fmt.Sprintf("; and %d more", n-most)
	}
	return strings.Join(in.damage, "; ")
}

// block is a file of messages.
type block struct {
	stream, path string
	number       int
	size         int64
	bad          int // where the first record is that is not whole; -1 for none
}

// streamDirs returns the directories of the queues' streams, by name. The directory itself is no
// pattern: it may have any characters.
func streamDirs(dir string) (map[string]string, error) {
	paths, err := fs.Glob(os.DirFS(dir), "jetstream/*/streams/TW_*")
	found := make(map[string]string, len(paths))
	for _, p := range paths {
		found[filepath.Base(p)] = filepath.Join(dir, p)
	}
	return found, err
}

// blocksOf returns a stream's blocks, the oldest first.
func blocksOf(stream, dir string) ([]*block, error) {
	entries, err := os.ReadDir(filepath.Join(dir, "msgs"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var blocks []*block
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".blk")
		n, atoiErr := strconv.Atoi(name)
		if !ok || atoiErr != nil {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, &block{stream: stream, path: filepath.Join(dir, "msgs", e.Name()), number: n, size: info.Size(), bad: -1})
	}
	slices.SortFunc(blocks, func(a, b *block) int { return a.number - b.number })
	return blocks, err
}

// inspect checks all that is there, against the account of what was there. It reads every
// file once.
func inspect(ctx context.Context, dir string, a *account) (*inspection, error) {
	in := &inspection{}
	dirs, err := streamDirs(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range sortedKeys(a.Streams) {
		if dirs[name] == "" {
			in.found("the stream %s is gone", name)
		}
	}
	for _, name := range sortedKeys(dirs) {
		blocks, err := blocksOf(name, dirs[name])
		if err == nil {
			err = scanAll(ctx, blocks)
		}
		if err != nil {
			return nil, err
		}
		if err := in.stream(name, dirs[name], blocks, a); err != nil {
			return nil, err
		}
	}
	return in, nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// stream judges what the scan of a stream has shown.
func (in *inspection) stream(name, dir string, blocks []*block, a *account) error {
	sizes, known := a.Streams[name]
	if known && len(blocks) == 0 {
		in.found("all messages of the stream %s are gone", name)
		return nil
	}
	if known && a.closed {
		if err := checkMeta(name, dir); err != nil {
			in.found("the stream %s: %v", name, err)
		}
		in.compare(name, blocks, sizes)
	}
	for i, b := range blocks {
		if b.bad < 0 {
			continue
		}
		if !known || !a.closed {
			if torn, err := isTorn(blocks[i:]); err != nil {
				return err
			} else if torn {
				break // the server removes it
			}
		}
		lost, err := describeHole(b)
		if err != nil {
			return err
		}
		in.found("the stream %s: %s of %d.blk cannot be read", name, lost, b.number)
		in.toMend(b)
	}
	return nil
}

func (in *inspection) toMend(b *block) {
	if !slices.Contains(in.mend, b) {
		in.mend = append(in.mend, b)
	}
}

// compare looks whether the blocks are those that the store was closed with.
func (in *inspection) compare(name string, blocks []*block, sizes map[string]int64) {
	there := map[string]int64{}
	for _, b := range blocks {
		file := filepath.Base(b.path)
		there[file] = b.size
		if want, ok := sizes[file]; !ok {
			in.found("the stream %s: %s was not there when the store was closed", name, file)
		} else if want != b.size {
			how := "and had %d"
			if b.size > want {
				how = "more than the %d that it was closed with: another program has written to it, such as a nats-server on this directory"
			}
			in.found("the stream %s: %s has %d bytes, "+how, name, file, b.size, want)
			in.toMend(b)
		}
	}
	for _, file := range sortedKeys(sizes) {
		if _, ok := there[file]; !ok {
			in.found("the stream %s: %s is gone, with %d bytes", name, file, sizes[file])
		}
	}
}

// checkMeta looks at the file without which the server passes a stream over. If only its
// sum is missing, the stream is made anew around its messages; see jetstream.Connect.
func checkMeta(name, dir string) error {
	meta, err := os.ReadFile(filepath.Join(dir, "meta.inf"))
	if err != nil {
		return fmt.Errorf("cannot read its kind: %w", err)
	}
	sum, err := os.ReadFile(filepath.Join(dir, "meta.sum"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	h := newHash(name)
	h.Write(meta)
	if hex.EncodeToString(h.Sum(nil)) != string(sum) {
		return errors.New("meta.inf does not have its checksum")
	}
	return nil
}

// newHash returns the server's checksum of what has a name.
func newHash(name string) hash.Hash64 {
	key := sha256.Sum256([]byte(name))
	h, err := highwayhash.New64(key[:])
	if err != nil {
		panic(err) // of the key's length
	}
	return h
}

func (b *block) hash() hash.Hash64 { return newHash(fmt.Sprintf("%s-%d", b.stream, b.number)) }

// scanAll reads blocks, some at a time, and notes where each is not whole.
func scanAll(ctx context.Context, blocks []*block) error {
	next := make(chan *block, len(blocks))
	for _, b := range blocks {
		next <- b
	}
	close(next)
	errs := make([]error, min(4, runtime.GOMAXPROCS(0)))
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			var buf []byte
			for b := range next {
				if errs[i] = ctx.Err(); errs[i] != nil {
					return
				}
				if buf, errs[i] = b.read(buf); errs[i] != nil {
					return
				}
				if whole := wholeUntil(buf, 0, b.hash()); whole < len(buf) {
					b.bad = whole
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// read reads a block into a buffer that is made larger if need be.
func (b *block) read(buf []byte) ([]byte, error) {
	f, err := os.Open(b.path)
	if err != nil {
		return buf, err
	}
	defer f.Close()
	if int64(cap(buf)) < b.size {
		buf = make([]byte, b.size)
	}
	buf = buf[:b.size]
	n, err := f.ReadAt(buf, 0)
	if n == len(buf) {
		err = nil
	}
	return buf[:n], err
}

// A record: its length with a bit for whether it has headers, the sequence and the time,
// the length of the subject; the subject, the length of the headers if it has some, the
// headers, the message, and a checksum of all but the lengths.
const (
	headSize   = 22
	sumSize    = 8
	maxRecord  = 32 << 20
	hasHeaders = 1 << 31
	notMessage = 3 << 62 // the sequence's bits of what only says that another was removed
)

// record returns the length of the record at an offset, 0 if it is not whole, and where
// its headers or else its message begins.
func record(buf []byte, at int, h hash.Hash64) (size, body int) {
	if at+headSize > len(buf) {
		return 0, 0
	}
	head := buf[at : at+headSize]
	word := binary.LittleEndian.Uint32(head)
	size = int(word &^ hasHeaders)
	subject := int(binary.LittleEndian.Uint16(head[20:]))
	skip := 0
	if word&hasHeaders != 0 {
		skip = 4
	}
	if size > maxRecord || at+size > len(buf) || headSize+subject+skip+sumSize > size {
		return 0, 0
	}
	data := buf[at+headSize : at+size]
	h.Reset()
	h.Write(head[4:20])
	h.Write(data[:subject])
	h.Write(data[subject+skip : len(data)-sumSize])
	var sum [sumSize]byte
	if !bytes.Equal(h.Sum(sum[:0]), data[len(data)-sumSize:]) {
		return 0, 0
	}
	return size, at + headSize + subject + skip
}

// wholeUntil returns where the first record is that is not whole.
func wholeUntil(buf []byte, at int, h hash.Hash64) int {
	for at < len(buf) {
		size, _ := record(buf, at, h)
		if size == 0 {
			break
		}
		at += size
	}
	return at
}

// nextWhole returns where the next message is after one that is not whole; the end if
// there is none. It is found by its subject, which begins with the stream's name.
func nextWhole(buf []byte, at int, stream string, h hash.Hash64) int {
	name := []byte(stream + ".")
	for from := at + headSize + 1; from < len(buf); from++ {
		i := bytes.Index(buf[from:], name)
		if i < 0 {
			break
		}
		from += i
		if size, _ := record(buf, from-headSize, h); size > 0 {
			return from - headSize
		}
	}
	return len(buf)
}

// isTorn reports whether the first of these blocks, and the last of the stream, ends as
// it may after a power cut: after what is not whole comes nothing, or only the rest of
// one batch.
func isTorn(blocks []*block) (bool, error) {
	batch := ""
	for i, b := range blocks {
		buf, err := b.read(nil)
		if err != nil {
			return false, err
		}
		h, at := b.hash(), 0
		if i == 0 {
			at = nextWhole(buf, b.bad, b.stream, h)
		}
		for at < len(buf) {
			size, body := record(buf, at, h)
			if size == 0 {
				at = nextWhole(buf, at, b.stream, h)
				continue
			}
			if binary.LittleEndian.Uint64(buf[at+4:])&notMessage == 0 {
				id := batchOf(buf[body : at+size])
				if id == "" || batch != "" && id != batch {
					return false, nil
				}
				batch = id
			}
			at += size
		}
	}
	return true, nil
}

// batchOf returns the batch that a message is of.
func batchOf(message []byte) string {
	const header = "Nats-Batch-Id:"
	if !bytes.HasPrefix(message, []byte("NATS/1.0\r\n")) {
		return ""
	}
	headers, _, _ := bytes.Cut(message, []byte("\r\n\r\n"))
	_, rest, ok := bytes.Cut(headers, []byte(header))
	if !ok {
		return ""
	}
	id, _, _ := bytes.Cut(rest, []byte("\r\n"))
	return string(bytes.TrimSpace(id))
}

// wholeParts returns the parts of a block that are whole.
func (b *block) wholeParts(buf []byte) (whole [][]byte) {
	h := b.hash()
	for at := 0; at < len(buf); {
		end := wholeUntil(buf, at, h)
		if end > at {
			whole = append(whole, buf[at:end])
		}
		if at = end; at < len(buf) {
			at = nextWhole(buf, at, b.stream, h)
		}
	}
	return whole
}

// describeHole says how much of a block is lost.
func describeHole(b *block) (string, error) {
	buf, err := b.read(nil)
	if err != nil {
		return "", err
	}
	lost := len(buf)
	for _, s := range b.wholeParts(buf) {
		lost -= len(s)
	}
	return fmt.Sprintf("%d of %d bytes", lost, len(buf)), nil
}

// repair makes readable what is left: damaged blocks lose what is not whole, and the
// server's own account of the stream, which does not fit any more, is made anew by it.
func (in *inspection) repair() error {
	for _, b := range in.mend {
		buf, err := b.read(nil)
		if err != nil {
			return err
		}
		if err := writeFile(b.path, bytes.Join(b.wholeParts(buf), nil)); err != nil {
			return err
		}
		if err := os.Remove(filepath.Join(filepath.Dir(b.path), "index.db")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
