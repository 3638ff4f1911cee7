package a

import (
	stdcontext "context"
	"errors"

	"github.com/tickwheel/tickwheel/dropin/context"
	"github.com/tickwheel/tickwheel/dropin/time"
	"github.com/tickwheel/tickwheel/timingwheel"
)

var w *timingwheel.TimingWheel

var kept context.CancelFunc

func blank() context.Context {
	ctx, _ := context.WithTimeout(context.Background(), time.Second) // want `the cancel function of WithTimeout is dropped: call it, or`
	return ctx
}

func blankOfAWheel() context.Context {
	ctx, _ := w.WithTimeout(context.Background(), time.Second) // want `the cancel function of WithTimeout is dropped: call it, or`
	return ctx
}

func blankDeclared() {
	var ctx, _ = context.WithCancelCause(context.Background()) // want `the cancel function of WithCancelCause is dropped: call it, or`
	<-ctx.Done()
}

func inALiteral() {
	go func() {
		ctx, _ := context.WithCancel(context.Background()) // want `the cancel function of WithCancel is dropped: call it, or`
		<-ctx.Done()
	}()
}

func onOnePath(fail bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) // want `the cancel function of WithTimeout is not used on all paths: call cancel\(\) on each, or`
	if fail {
		return errors.New("failed")
	}
	<-ctx.Done()
	cancel()
	return nil
}

func inALoop(n int) {
	for range n {
		ctx, cancel := w.WithTimeout(context.Background(), time.Second) // want `the cancel function of WithTimeout is not used on all paths: call cancel\(\) on each, or`
		if ctx.Err() != nil {
			return
		}
		cancel()
	}
}

func deferred() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	<-ctx.Done()
}

func replaced(twice bool) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) // want `the cancel function of WithTimeout is not used on all paths: call cancel\(\) on each, or`
	if twice {
		ctx, cancel = context.WithTimeout(ctx, time.Second)
	}
	defer cancel()
	<-ctx.Done()
}

func replacedInALoop(n int) {
	var cancel context.CancelFunc
	for range n {
		if cancel != nil {
			cancel()
		}
		_, cancel = w.WithTimeout(context.Background(), time.Second) // want `the cancel function of WithTimeout is not used on all paths: call cancel\(\) on each, or`
	}
}

func usedByADeferredLiteral(n int) {
	var cancel context.CancelFunc
	defer func() {
		if cancel != nil {
			cancel()
		}
	}()
	_, cancel = w.WithTimeout(context.Background(), time.Second)
}

func replacedAfterUse() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, time.Second)
	defer cancel()
	<-ctx.Done()
}

func passedOn() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	return ctx, cancel
}

func returned() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Second)
}

func usedByALiteral() {
	_, cancel := w.WithTimeout(context.Background(), time.Second)
	w.AfterFunc(time.Second, func() { cancel() })
}

func keptOutside() {
	_, kept = context.WithTimeout(context.Background(), time.Second)
}

func neverReturns() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	for {
		<-ctx.Done()
		if false {
			cancel()
		}
	}
}

func panics() {
	_, cancel := context.WithTimeout(context.Background(), time.Second)
	if kept == nil {
		panic("no")
	}
	cancel()
}

func ofTheStandardLibrary() stdcontext.Context {
	ctx, _ := stdcontext.WithCancel(stdcontext.Background()) // lostcancel reports it
	return ctx
}

func ticker(done chan bool) {
	t := w.NewTicker(time.Second) // want `nothing stops t, which NewTicker has put on a wheel: defer t.Stop\(\)`
	for {
		select {
		case <-t.C:
		case <-done:
			return
		}
	}
}

func timer() {
	var t = time.NewTimer(time.Second) // want `nothing stops t, which NewTimer has put on a wheel: defer t.Stop\(\)`
	<-t.C
}

func two() {
	t, r := w.NewTicker(time.Second), time.NewTimer(time.Second) // want `nothing stops t, which NewTicker` `nothing stops r, which NewTimer`
	<-t.C
	<-r.C
}

func stopped(done chan bool) {
	t := w.NewTicker(time.Second)
	defer t.Stop()
	r := time.NewTimer(time.Second)
	for {
		select {
		case <-t.C:
		case <-r.C:
		case <-done:
			return
		}
		r.Reset(time.Second)
	}
}

func tickerOfTheStandardLibrary() {
	t := time.NewTicker(time.Second)
	<-t.C
}

func given() *timingwheel.Ticker {
	t := w.NewTicker(time.Second)
	return t
}

func afterInALoop(work chan int) {
	for {
		select {
		case <-work:
		case <-w.After(time.Second): // want `each round leaves a timer of After on the wheel`
			return
		}
	}
}

func afterWithATime(work chan int) {
	for range work {
		select {
		case <-work:
		case at, ok := <-(w.After(time.Second)): // want `each round leaves a timer of After on the wheel`
			_, _ = at, ok
		}
	}
}

func afterOnce(work chan int) {
	select {
	case <-work:
	case <-w.After(time.Second):
	}
	for range work {
		<-w.After(time.Second)
		select {
		case <-w.After(time.Second):
		}
		select {
		case <-work:
		case <-time.After(time.Second): // package time's
		}
		go func() {
			select {
			case <-work:
			case <-w.After(time.Second):
			}
		}()
	}
}

func zones() {
	time.Local = time.UTC     // want `Local of dropin/time is a copy`
	time.UTC, kept = nil, nil // want `UTC of dropin/time is a copy`
	local := time.Local
	_ = local
}
