package stream

import (
	"fmt"
	"strings"
	"sync"
)

// A stream goes back when its servers have lost what they had acknowledged: an earlier copy of the
// directory was put in its place, a backup was restored, or a power cut took what was not synced.
// Its sequences are given a second time then, to other messages. So what is known here of the
// stream is wrong, and an acknowledgment by sequence would be that of another job.
//
// Each of these says that it went back, and nothing else does:
//
//   - it was made anew;
//   - a write has a sequence that the stream had before the write was sent; with one replica also:
//     the stream says that its last sequence is lower than it was;
//   - a message that was written here is another one now. Each poll reads the one that was the last
//     at the poll before. That tells of a stream that went back and has grown since, by the writes
//     of others, beyond where it had been.
//
// From then on history.backs is another. All that is cached is dropped (Stream.Drop). A caller that
// keeps more than that compares it with the stream when Backs has another value.

// history is what is known of the past of a stream. The sequences of several replicas are only
// those of writes, which a majority has: a server that says what it has may be behind. Mu guards
// all of it, and is held for no request.
//
// backs only grows, so a caller that has noted it knows later whether what it read before is still
// true of the stream. It is of this process: others notice by themselves, and count by themselves.
type history struct {
	mu    sync.Mutex
	backs int64    // how often the stream went back
	how   string   // the sign by which the last time was noticed
	high  uint64   // the highest sequence that it has had since
	last  landmark // of this engine's writes
	prev  landmark // what last was when LookBack was called last
}

// ErrWentBack is the error of a write or a removal by sequences of before the stream went back.
// Nothing was sent then. It wraps ErrConflict, after which a caller reads again what its
// write is based on.
var ErrWentBack = fmt.Errorf("%w: the stream went back meanwhile", ErrConflict)

// landmark is a message that was written. Its data is compared as a whole, so it costs the memory
// of one message: a status, mostly.
type landmark struct {
	seq     uint64
	subject string
	data    []byte
}

// moment is what was known when a question or a write was sent. An answer is compared with the moment
// of its question, and not with that of its arrival: answers pass one another, and an earlier one with a
// lower sequence is no sign.
type moment struct {
	backs int64
	high  uint64
}

func (h *history) now() moment {
	h.mu.Lock()
	defer h.mu.Unlock()
	return moment{h.backs, h.high}
}

// restart begins the next history, and reports whether backs was that of the last one: of several
// callers one does it.
func (h *history) restart(backs int64, now uint64, how string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.backs != backs {
		return false
	}
	h.backs++
	h.how, h.high, h.last, h.prev = how, now, landmark{}, landmark{}
	return true
}

// note keeps a message that was written as a landmark: the last status of a commit, by which it is
// found that claims have ended; before there is one, any message with data, since tombstones are
// all alike. If commits overlap, the one with the highest sequence counts, in whichever order
// their answers come; and one of before the stream went back does not count.
func (h *history) note(backs int64, first uint64, groups []Group, status string) {
	n := first
	l := landmark{}
	for _, g := range groups {
		for i := range g {
			if len(g[i].Data) > 0 && (strings.HasPrefix(g[i].Subject, status) || !strings.HasPrefix(l.subject, status)) {
				l = landmark{n, g[i].Subject, g[i].Data}
			}
			n++
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	better := strings.HasPrefix(l.subject, status) || !strings.HasPrefix(h.last.subject, status)
	if better && backs == h.backs && l.seq > h.last.seq {
		h.last = l
	}
}
