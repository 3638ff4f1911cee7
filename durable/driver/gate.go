package driver

import (
	"fmt"
	"slices"
	"sync"
)

// KindGate has the kinds that a worker has handlers for, and knows for which of these it
// has room now. The set of kinds never changes. At first all are open; the Queue shuts a
// kind that it has too many jobs of, and opens it again. Jobs that were on their way when
// a kind was shut may still be handed out.
//
// All methods may be called by several goroutines at once. Their cost does not grow with the number
// of kinds, except that of Open after a change. Nil has no kinds.
type KindGate struct {
	all     []string // sorted
	limited map[string]bool

	mu      sync.Mutex
	shut    map[string]bool
	open    []string      // what Open returns; nil: to be made anew
	changed chan struct{} // closed, and made anew, with each change
}

// NewKindGate returns a KindGate whose kinds are all open. Those in limited have a limit of their
// own, so that an engine should fetch them apart from the others. NewKindGate panics if limited has
// a kind that all does not have.
func NewKindGate(all []string, limited ...string) *KindGate {
	k := &KindGate{
		all: slices.Compact(slices.Sorted(slices.Values(all))), limited: map[string]bool{},
		shut: map[string]bool{}, changed: make(chan struct{}),
	}
	for _, kind := range limited {
		if !k.Has(kind) {
			panic(fmt.Sprintf("durable: NewKindGate: %q has a limit, but is not one of the kinds", kind))
		}
		k.limited[kind] = true
	}
	k.open = k.all
	return k
}

// All returns all kinds, sorted. The slice must not be changed.
func (k *KindGate) All() []string {
	if k == nil {
		return nil
	}
	return k.all
}

// Has reports whether a kind is one of these, open or shut.
func (k *KindGate) Has(kind string) bool {
	_, ok := slices.BinarySearch(k.All(), kind)
	return ok
}

// Limited reports whether a kind has its own limit.
func (k *KindGate) Limited(kind string) bool { return k != nil && k.limited[kind] }

// Open returns the kinds that are open, sorted, and a channel that is closed when that
// changes. The slice must not be changed.
func (k *KindGate) Open() (kinds []string, changed <-chan struct{}) {
	if k == nil {
		return nil, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.open == nil {
		k.open = make([]string, 0, len(k.all))
		for _, kind := range k.all {
			if !k.shut[kind] {
				k.open = append(k.open, kind)
			}
		}
	}
	return k.open, k.changed
}

// Set opens a kind, or shuts it.
func (k *KindGate) Set(kind string, open bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.shut[kind] == !open {
		return
	}
	if open {
		delete(k.shut, kind)
	} else {
		k.shut[kind] = true
	}
	k.open = nil
	close(k.changed)
	k.changed = make(chan struct{})
}
