package embedded

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
)

// account says what there is in the directory, so that it is known when something is
// missing. It is in the file closed.json from when a store has been closed in order until
// it is opened again: then each file has to be as it was. While it is open, and after a
// kill, it is in open.json: then only the streams' names count, since the server makes and
// removes files.
type account struct {
	Streams map[string]map[string]int64 `json:"streams"` // the sizes of blocks by their names

	closed bool
}

const (
	closedFile = "closed.json"
	openFile   = "open.json"
)

// readAccount returns the account; an empty one if there is none, as in a new directory.
func readAccount(dir string) (*account, error) {
	for _, name := range []string{openFile, closedFile} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		a := &account{closed: name == closedFile}
		if err == nil {
			err = json.Unmarshal(data, a)
		}
		return a, err
	}
	return &account{}, nil
}

// takeAccount returns what there is now.
func takeAccount(dir string) (*account, error) {
	dirs, err := streamDirs(dir)
	if err != nil {
		return nil, err
	}
	a := &account{Streams: map[string]map[string]int64{}}
	for name, path := range dirs {
		blocks, err := blocksOf(name, path)
		if err != nil {
			return nil, err
		}
		sizes := make(map[string]int64, len(blocks))
		for _, b := range blocks {
			sizes[filepath.Base(b.path)] = b.size
		}
		a.Streams[name] = sizes
	}
	return a, nil
}

// markOpen is the last thing before the server is started. It takes no room, so that a
// full disk is no hindrance.
func markOpen(dir string) error {
	err := os.Rename(filepath.Join(dir, closedFile), filepath.Join(dir, openFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, syncDir(dir))
}

// noteStreams writes down what streams there are, while the store is open.
func noteStreams(dir string, before *account) error {
	now, err := takeAccount(dir)
	if err != nil {
		return err
	}
	if slices.Equal(sortedKeys(now.Streams), sortedKeys(before.Streams)) {
		return nil // no write: the disk may be full
	}
	return now.write(dir, openFile)
}

// markClosed is the last thing after the server has ended in order. If the end of a stream
// is not whole, which a full disk does, the store counts as one that was killed.
func markClosed(dir string) error {
	a, err := takeAccount(dir)
	if err != nil {
		return err
	}
	dirs, err := streamDirs(dir)
	if err != nil {
		return err
	}
	for name, path := range dirs {
		blocks, err := blocksOf(name, path)
		if err != nil || len(blocks) == 0 {
			return err
		}
		last := blocks[len(blocks)-1]
		buf, err := last.read(nil)
		if err != nil || wholeUntil(buf, 0, last.hash()) < len(buf) {
			return err
		}
	}
	if err := a.write(dir, closedFile); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(dir, openFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncDir(dir)
}

func (a *account) write(dir, name string) error {
	data, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, name), data)
}

// writeFile replaces a file at once, and for good.
func writeFile(path string, data []byte) error {
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(path+".new"))
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes sure that what a directory has survives a power cut. Windows has no such
// call.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
