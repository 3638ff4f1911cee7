// Package once lets durable.Open see that an engine has a Queue already.
package once

import "sync/atomic"

// Place is for one at a time. The zero Place is free.
type Place struct{ taken atomic.Bool }

// Take takes the place, and reports false if another has it.
func (p *Place) Take() bool { return p.taken.CompareAndSwap(false, true) }

// Leave makes the place free.
func (p *Place) Leave() { p.taken.Store(false) }

// Engine is an engine that has a place for its Queue. Those that have none, such as ones
// that wrap others, are not looked at.
type Engine interface{ PlaceOfQueue() *Place }
