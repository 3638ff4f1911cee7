package driver

import (
	"fmt"
	"slices"
	"sync"
)

// KindSet has the kinds that a worker has handlers for. The set never changes. Each kind is
// open or shut, and at first all are open. The Queue shuts a kind when it holds too many of
// its jobs, and opens it again later. Jobs that were on their way when a kind was shut may
// still be handed out.
//
// All methods may be called by several goroutines at once. Their cost does not grow with the number
// of kinds, except that of Open after a change. Nil has no kinds.
type KindSet struct {
	all     []string // sorted
	limited map[string]bool

	mu      sync.Mutex
	shut    map[string]bool
	open    []string      // what Open returns; nil: to be made anew
	changed chan struct{} // closed, and made anew, with each change
}

// NewKindSet returns a KindSet whose kinds are all open. Those in limited have a limit of their
// own, so that an engine should fetch them apart from the others. NewKindSet panics if limited has
// a kind that all does not have.
func NewKindSet(all []string, limited ...string) *KindSet {
	k := &KindSet{
		all: slices.Compact(slices.Sorted(slices.Values(all))), limited: map[string]bool{},
		shut: map[string]bool{}, changed: make(chan struct{}),
	}
	for _, kind := range limited {
		if !k.Has(kind) {
			panic(fmt.Sprintf("durable: NewKindSet: %q has a limit, but is not one of the kinds", kind))
		}
		k.limited[kind] = true
	}
	k.open = k.all
	return k
}

// All returns all kinds, sorted. The slice must not be changed.
func (k *KindSet) All() []string {
	if k == nil {
		return nil
	}
	return k.all
}

// Has reports whether a kind is one of these, open or shut.
func (k *KindSet) Has(kind string) bool {
	_, ok := slices.BinarySearch(k.All(), kind)
	return ok
}

// Limited reports whether a kind has its own limit.
func (k *KindSet) Limited(kind string) bool { return k != nil && k.limited[kind] }

// Open returns the kinds that are open, sorted, and a channel that is closed when that
// changes. The slice must not be changed.
func (k *KindSet) Open() (kinds []string, changed <-chan struct{}) {
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
func (k *KindSet) Set(kind string, open bool) {
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
