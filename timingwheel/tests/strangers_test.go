package timingwheel_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// The tests in this file put unusual deadlines and parents below package context, and
// below a wheel, and compare everything that a program can see of the contexts.

// family makes contexts, all by package context or all by a wheel.
type family struct {
	t        *testing.T
	timeout  func(parent context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc)
	deadline func(parent context.Context, at time.Time, cause error) (context.Context, context.CancelFunc)
}

func families(t *testing.T, w *timingwheel.TimingWheel) (theirs, ours family) {
	return family{t, context.WithTimeoutCause, context.WithDeadlineCause}, family{t, w.WithTimeoutCause, w.WithDeadlineCause}
}

func (m family) in(parent context.Context, d time.Duration) context.Context {
	return m.keep(m.timeout(parent, d, errors.New("in time")))
}

func (m family) at(parent context.Context, at time.Time) context.Context {
	return m.keep(m.deadline(parent, at, errors.New("at a time")))
}

// keep cancels the context when the test has ended. Package context may panic then, if
// the parent does.
func (m family) keep(ctx context.Context, cancel context.CancelFunc) context.Context {
	m.t.Cleanup(func() { try(func() any { cancel(); return nil }) })
	return ctx
}

var timeLeft = regexp.MustCompile(`\[[^\]]*\]`)

// look returns all that a program can see of a context.
func look(ctx context.Context) map[string]string {
	all := map[string]string{}
	for method, call := range map[string]func() any{
		"Deadline": func() any { at, ok := ctx.Deadline(); return fmt.Sprint(at, ok) },
		"Done":     func() any { return fmt.Sprint(ctx.Done() != nil, ended(ctx)) },
		"Err":      func() any { return ctx.Err() },
		"Cause":    func() any { return context.Cause(ctx) },
		"Value":    func() any { return ctx.Value(ctxKey("of")) },
		"String":   func() any { return timeLeft.ReplaceAllString(fmt.Sprint(ctx), "[]") },
	} {
		all[method] = try(call)
	}
	return all
}

// try prints the result of a call, or "panic".
func try(call func() any) (result string) {
	defer func() {
		if recover() != nil {
			result = "panic"
		}
	}()
	return fmt.Sprint(call())
}

// alikeTo compares the views of two contexts, except for known differences: package
// context names no parent that is not its own, and panics where a parent does.
func alikeTo(t *testing.T, theirs, ours map[string]string, about ...any) {
	t.Helper()
	for method, result := range theirs {
		if result != "panic" && !strings.Contains(ours[method], "stopCtx") {
			require.Equal(t, result, ours[method], fmt.Sprintln(method, about))
		}
	}
}

// The zero time is a deadline like any other one. It has passed.
func TestZeroDeadline(t *testing.T) {
	start, zero := time.Now().Round(0), time.Time{}
	parents := map[string]func(m family) context.Context{
		"background": func(m family) context.Context { return context.Background() },
		"cancelable": func(m family) context.Context { return m.keep(context.WithCancel(context.Background())) },
		"canceled": func(m family) context.Context {
			ctx, cancel := context.WithCancelCause(context.Background())
			cancel(errCause)
			return ctx
		},
		"a deadline":   func(m family) context.Context { return m.at(context.Background(), start.Add(time.Hour)) },
		"a past one":   func(m family) context.Context { return m.at(context.Background(), start.Add(-time.Hour)) },
		"the zero one": func(m family) context.Context { return m.at(context.Background(), zero) },
		"a stranger's": func(m family) context.Context { return withDeadline{context.Background(), zero} },
	}
	derive := map[string]func(m family, none context.Context) context.Context{
		"itself":         func(m family, none context.Context) context.Context { return none },
		"WithTimeout":    func(m family, none context.Context) context.Context { return m.in(none, time.Hour) },
		"a past timeout": func(m family, none context.Context) context.Context { return m.in(none, -time.Hour) },
		"the zero time":  func(m family, none context.Context) context.Context { return m.at(none, zero) },
		"an earlier one": func(m family, none context.Context) context.Context { return m.at(none, zero.Add(-1)) },
		"in another zone": func(m family, none context.Context) context.Context {
			return m.at(none, zero.In(time.FixedZone("", 60)))
		},
		"far off":    func(m family, none context.Context) context.Context { return m.at(none, start.AddDate(900, 0, 0)) },
		"WithCancel": func(m family, none context.Context) context.Context { return m.keep(context.WithCancel(none)) },
		"below a value": func(m family, none context.Context) context.Context {
			return m.in(context.WithValue(none, ctxKey("k"), 1), 1)
		},
		"below a timeout":  func(m family, none context.Context) context.Context { return m.in(m.in(none, time.Hour), time.Minute) },
		"below WithCancel": func(m family, none context.Context) context.Context { return m.in(m.keep(context.WithCancel(none)), 1) },
		"WithoutCancel": func(m family, none context.Context) context.Context {
			return m.at(context.WithoutCancel(none), start.Add(time.Hour))
		},
	}
	for above, parent := range parents {
		for name, derive := range derive {
			for clock, options := range map[string][]timingwheel.Option{"real": nil, "manual": {timingwheel.WithManualClock(start)}} {
				w := timingwheel.New(options...)
				view := func(m family) map[string]string {
					none := m.at(context.WithValue(parent(m), ctxKey("of"), "it"), zero)
					require.Error(t, none.Err())
					return look(derive(m, none))
				}
				theirs, ours := families(t, w)
				alikeTo(t, view(theirs), view(ours), name, "below the zero time, below", above, "on the clock", clock)
				w.Stop()
			}
		}
	}
}

// withDeadline is a context with a deadline that nobody keeps.
type withDeadline struct {
	context.Context
	at time.Time
}

func (c withDeadline) Deadline() (time.Time, bool) { return c.at, true }

// pooled is a parent that a framework gives to another request while children live: its
// methods are those of another context then. None stands for methods that panic.
type pooled struct {
	now atomic.Pointer[context.Context]
}

func newPooled(ctx context.Context) *pooled {
	p := new(pooled)
	p.reset(ctx)
	return p
}

func (p *pooled) reset(to context.Context) { p.now.Store(&to) }
func (p *pooled) ctx() context.Context     { return *p.now.Load() }

func (p *pooled) Deadline() (time.Time, bool) { return p.ctx().Deadline() }
func (p *pooled) Done() <-chan struct{}       { return p.ctx().Done() }
func (p *pooled) Err() error                  { return p.ctx().Err() }
func (p *pooled) Value(key any) any           { return p.ctx().Value(key) }

// own has a channel of its own, and no value.
type own struct {
	context.Context
	done chan struct{}
	err  error
}

func (o *own) Done() <-chan struct{} { return o.done }
func (o *own) Err() error            { return o.err }
func (o *own) Value(any) any         { return nil }

// request returns the context of a request, and the function that ends it.
type request func(m family) (ctx context.Context, end func())

// requests are the contexts that a parent has first.
var requests = map[string]request{
	"never ends": func(m family) (context.Context, func()) { return context.Background(), func() {} },
	"cancelable": func(m family) (context.Context, func()) {
		ctx, cancel := context.WithCancelCause(context.Background())
		return ctx, func() { cancel(errCause) }
	},
	"with a value": func(m family) (context.Context, func()) {
		ctx, cancel := context.WithCancelCause(context.Background())
		return context.WithValue(ctx, ctxKey("of"), "a request"), func() { cancel(errCause) }
	},
	"with a deadline": func(m family) (context.Context, func()) {
		return m.in(context.Background(), time.Minute), func() { time.Sleep(time.Minute) }
	},
	"with a deadline that is far": func(m family) (context.Context, func()) {
		ctx, cancel := m.timeout(context.Background(), 100*time.Hour, errCause)
		return ctx, cancel
	},
	"with a channel of its own": func(m family) (context.Context, func()) {
		o := &own{context.Background(), make(chan struct{}), nil}
		return o, func() { o.err = errCause; close(o.done) }
	},
}

// resets are the contexts that a parent has later; a request can be one, too.
var resets = map[string]request{
	"ended": func(m family) (context.Context, func()) {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(errors.New("the other's"))
		return ctx, nil
	},
	"panics": func(m family) (context.Context, func()) { return nil, nil },
}

// derivations derive a context from a child.
var derivations = []struct {
	name   string
	derive func(m family, child context.Context) context.Context
}{
	{"itself", func(m family, child context.Context) context.Context { return child }},
	{"WithTimeout", func(m family, child context.Context) context.Context { return m.in(child, time.Hour) }},
	{"a later one", func(m family, child context.Context) context.Context { return m.in(child, 1000*time.Hour) }},
	{"a past one", func(m family, child context.Context) context.Context { return m.in(child, -1) }},
	{"WithCancel", func(m family, child context.Context) context.Context { return m.keep(context.WithCancel(child)) }},
	{"WithValue", func(m family, child context.Context) context.Context { return context.WithValue(child, ctxKey("k"), 1) }},
	{"AfterFunc", func(m family, child context.Context) context.Context {
		ctx, cancel := context.WithCancelCause(context.Background())
		context.AfterFunc(child, func() { cancel(context.Cause(child)) })
		return ctx
	}},
	{"below a value", func(m family, child context.Context) context.Context {
		return m.in(context.WithValue(child, ctxKey("k"), 1), time.Hour)
	}},
	{"two below", func(m family, child context.Context) context.Context {
		return m.in(m.in(child, 1000*time.Hour), time.Hour)
	}},
}

// waysToEnd end the request, the child, both or neither.
var waysToEnd = map[string]func(end, cancel func()){
	"nothing ends":                   func(end, cancel func()) {},
	"the request ends":               func(end, cancel func()) { end() },
	"the child is canceled":          func(end, cancel func()) { try(func() any { cancel(); return nil }) },
	"the child is canceled, then it": func(end, cancel func()) { try(func() any { cancel(); return nil }); end() },
	"the child's deadline comes":     func(end, cancel func()) { time.Sleep(500 * time.Hour) },
}

// viewReused returns how a child and a context that is derived from it look when the parent was reset meanwhile.
func viewReused(m family, first, second request, endBy func(end, cancel func()), d time.Duration, asked bool, derive func(m family, child context.Context) context.Context) (all []map[string]string) {
	ctx, end := first(m)
	parent := newPooled(ctx)
	child, cancel := m.timeout(parent, d, errors.New("the child's"))
	m.keep(child, cancel)
	if asked {
		child.Done()
	}
	synctest.Wait() // for goroutines of package context
	other, _ := second(m)
	parent.reset(other)
	all = append(all, map[string]string{"derive": try(func() any { ctx = derive(m, child); return nil })})
	endBy(end, cancel)
	synctest.Wait()
	return append(all, look(child), look(ctx))
}

// A parent is asked once for what decides how a child ends. So a parent that is another
// one later does the child no harm: the child ends with the first, with its error and
// cause.
func TestParentsThatAreReused(t *testing.T) {
	seconds := maps.Clone(resets)
	maps.Copy(seconds, requests)
	for before, first := range requests {
		for after, second := range seconds {
			for ending, endBy := range waysToEnd {
				if before == "with a channel of its own" && after != "ended" ||
					after == "panics" && ending == "the child's deadline comes" {
					continue // a goroutine of package context would panic
				}
				var views [2]map[string][]map[string]string
				for i := range views {
					synctest.Test(t, func(t *testing.T) {
						w := timingwheel.New()
						defer w.Stop()
						theirs, ours := families(t, w)
						m := []family{theirs, ours}[i]
						views[i] = map[string][]map[string]string{}
						for _, by := range derivations {
							for _, d := range []time.Duration{10 * time.Hour, 200 * time.Hour} {
								for _, asked := range []bool{false, true} {
									views[i][fmt.Sprint(by.name, d, asked)] = viewReused(m, first, second, endBy, d, asked, by.derive)
								}
							}
						}
					})
				}
				for name, theirs := range views[0] {
					for i := range theirs {
						alikeTo(t, theirs[i], views[1][name][i], name, "below a request:", before, "reset to:", after, "when", ending)
					}
				}
			}
		}
	}
}
