package timingwheel

import "context"

// The canceler of a context is what ends it: the innermost context above it, or itself,
// that can be canceled. All contexts with the same canceler have the same Done channel.

// cancelerOf returns the canceler of a parent that can be canceled, whose Done channel is
// done. It is one of package context, if package context would take it for the canceler;
// else it is an outsider.
//
// The canceler is not the parent: whoever holds a canceler holds no value that somebody
// below it has put into a context.
func cancelerOf(parent context.Context, done <-chan struct{}) context.Context {
	if c, ok := parent.Value(packageKey).(context.Context); ok && c.Done() == done {
		return c
	}
	return &outsider{parent, done}
}

// outsider is the canceler of a context that is not one of package context, and has a
// Done channel of its own. It asks that context nothing before the channel is closed.
type outsider struct {
	context.Context
	done <-chan struct{} // what the context's Done returned, once
}

func (o *outsider) Done() <-chan struct{} { return o.done }

func (o *outsider) Err() error {
	select {
	case <-o.done:
		return o.Context.Err()
	default:
		return nil
	}
}

// packageKey is the key by which package context looks for one of its own, with Value. It
// is private there, but package context asks every context for it, ours too.
var packageKey = func() any {
	asked := &keyCatcher{Context: context.Background()}
	context.Cause(asked)
	return asked.key
}()

// keyCatcher is a context that has ended. Otherwise Cause would not ask it for the key.
type keyCatcher struct {
	context.Context
	key any
}

func (c *keyCatcher) Err() error { return context.Canceled }

func (c *keyCatcher) Value(key any) any {
	c.key = key
	return nil
}
