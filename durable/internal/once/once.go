// Package once lets durable.Open see that an engine has a Queue already.
package once

import "sync/atomic"

// Owner says whether a Queue owns an engine. With the zero Owner none does.
type Owner struct{ owned atomic.Bool }

// Take makes a Queue the owner, and reports false if there is one.
func (o *Owner) Take() bool { return o.owned.CompareAndSwap(false, true) }

// Leave ends the ownership.
func (o *Owner) Leave() { o.owned.Store(false) }

// Engine is an engine that knows whether it is owned. Others, such as those that wrap one, are
// not checked.
type Engine interface{ QueueOwner() *Owner }
