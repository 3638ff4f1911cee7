package driver

import (
	"fmt"
	"slices"
	"sync"
)

// Kinds says what a worker can be handed: the kinds that it has handlers for, and which of
// these it has room for at the moment. Which kinds they are never changes. At first all are
// open; the Queue shuts one that it has too many jobs of, and opens it again. Jobs that were on
// their way when a kind was shut may still be handed out.
//
// All methods may be called by several goroutines at once. They cost nothing that grows
// with the number of kinds, but for Open after a change. Nil has no kinds.
type Kinds struct {
	all     []string // sorted
	limited map[string]bool

	mu      sync.Mutex
	shut    map[string]bool
	open    []string      // what Open returns; nil: to be made anew
	changed chan struct{} // closed, and made anew, with each change
}

// NewKinds returns Kinds that are all open. Of these, limited have a limit of their own,
// so that an engine does well to fetch them apart from the others. NewKinds panics if one
// of limited is none of all.
func NewKinds(all []string, limited ...string) *Kinds {
	k := &Kinds{
		all: slices.Compact(slices.Sorted(slices.Values(all))), limited: map[string]bool{},
		shut: map[string]bool{}, changed: make(chan struct{}),
	}
	for _, kind := range limited {
		if !k.Has(kind) {
			panic(fmt.Sprintf("durable: NewKinds: %q has a limit, and is none of the kinds", kind))
		}
		k.limited[kind] = true
	}
	k.open = k.all
	return k
}

// All returns all kinds, sorted. The slice must not be changed.
func (k *Kinds) All() []string {
	if k == nil {
		return nil
	}
	return k.all
}

// Has reports whether a kind is one of these, open or shut.
func (k *Kinds) Has(kind string) bool {
	_, ok := slices.BinarySearch(k.All(), kind)
	return ok
}

// Limited reports whether a kind has a limit of its own.
func (k *Kinds) Limited(kind string) bool { return k != nil && k.limited[kind] }

// Open returns the kinds that are open, sorted, and a channel that is closed when that
// changes. The slice must not be changed.
func (k *Kinds) Open() (kinds []string, changed <-chan struct{}) {
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
func (k *Kinds) Set(kind string, open bool) {
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
