package timingwheel

import (
	"fmt"
	"runtime/debug"
)

// WithPanicHandler sets a function that is called with the value and the stack of each
// panic in a task, in the goroutine of that task; the wheel, its other tasks and the
// goroutines that run them go on. Without one, a panic crashes the program, as with
// time.AfterFunc. New panics on nil. A panic in the handler itself crashes the program.
func WithPanicHandler(h func(recovered any, stack []byte)) Option {
	return func(c *config) {
		if h == nil {
			panic("timingwheel: WithPanicHandler(nil)")
		}
		c.panicHandler = h
	}
}

// panicError is the error that a panic became.
type panicError struct {
	value any
	stack []byte
}

// recovered returns the error for what recover has returned, nil for nil. It must be
// called while the stack still is that of the panic.
func recovered(r any) *panicError {
	if r == nil {
		return nil
	}
	return &panicError{r, debug.Stack()}
}

func (e *panicError) Error() string {
	return fmt.Sprintf("timingwheel: panic: %v\n\n%s", e.value, e.stack)
}

// Unwrap returns the value of the panic if that is an error.
func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}
