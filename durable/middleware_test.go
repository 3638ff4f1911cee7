package durable_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/enginetest"
)

// noting returns a middleware that writes down when it is come by.
func noting(name string, seen *[]string) durable.Middleware {
	return durable.Middleware{
		Add: func(next durable.AddFunc) durable.AddFunc {
			return func(ctx context.Context, jobs []durable.Job) ([]durable.Ref, error) {
				*seen = append(*seen, fmt.Sprint(name, " adds ", len(jobs)))
				for i := range jobs {
					if jobs[i].Meta == nil {
						jobs[i].Meta = map[string]string{}
					}
					jobs[i].Meta[name] = jobs[i].Kind
				}
				return next(ctx, jobs)
			}
		},
		Handle: func(next durable.Handler) durable.Handler {
			return func(ctx context.Context, a *durable.Attempt) error {
				*seen = append(*seen, name+" begins")
				defer func() { *seen = append(*seen, name+" ends") }()
				return next(ctx, a)
			}
		},
	}
}

// The first middleware is the outermost, over several options. What it changes is stored, and
// what the caller has stays as it is.
func TestMiddlewareOrder(t *testing.T) {
	var seen []string
	jobs := []durable.Job{{Kind: "a", After: time.Second, Meta: map[string]string{"x": "y"}}, {Kind: "a", After: time.Hour}}
	bubble(t, func(t *testing.T, _ *enginetest.Memory, q *durable.Queue) {
		var meta map[string]string
		q.Handle("a", func(_ context.Context, a *durable.Attempt) error {
			seen = append(seen, "handler")
			meta = a.Job.Meta
			return nil
		})
		go q.Run(t.Context())
		add(t, q, jobs...)
		_, err := q.Add(t.Context(), durable.Job{Kind: "a", After: 2 * time.Hour})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, map[string]string{"x": "y", "1": "a", "2": "a", "3": "a"}, meta)
	}, durable.WithMiddleware(noting("1", &seen), noting("2", &seen)), durable.WithMiddleware(noting("3", &seen)))
	require.Equal(t, []string{"1 adds 2", "2 adds 2", "3 adds 2", "1 adds 1", "2 adds 1", "3 adds 1",
		"1 begins", "2 begins", "3 begins", "handler", "3 ends", "2 ends", "1 ends"}, seen)
	require.Equal(t, map[string]string{"x": "y"}, jobs[0].Meta)
	require.Nil(t, jobs[1].Meta)
}

// What a handler returns, and how else it ends, means behind a middleware what it means
// without one.
func TestMiddlewarePassesEndsOn(t *testing.T) {
	errNo := errors.New("no")
	ends := map[string]struct {
		handle durable.Handler
		want   durable.Info
	}{
		"done":    {func(context.Context, *durable.Attempt) error { return nil }, durable.Info{}},
		"discard": {func(context.Context, *durable.Attempt) error { return durable.Discard(errNo) }, durable.Info{State: durable.Dead, Attempt: 1}},
		"again": {func(context.Context, *durable.Attempt) error { return durable.RetryAfter(time.Hour, errNo) },
			durable.Info{State: durable.Waiting, Attempt: 1}},
		"snooze": {func(context.Context, *durable.Attempt) error { return durable.Snooze(time.Hour) }, durable.Info{State: durable.Waiting}},
		"panic":  {func(context.Context, *durable.Attempt) error { panic("no") }, durable.Info{State: durable.Waiting, Attempt: 1}},
		"goexit": {func(context.Context, *durable.Attempt) error { runtime.Goexit(); return nil }, durable.Info{State: durable.Waiting, Attempt: 1}},
		"timeout": {func(ctx context.Context, _ *durable.Attempt) error {
			<-ctx.Done()
			return durable.Discard(context.Cause(ctx))
		}, durable.Info{State: durable.Dead, Attempt: 1}},
	}
	for what, end := range ends {
		t.Run(what, func(t *testing.T) {
			var seen []string
			bubble(t, func(t *testing.T, _ *enginetest.Memory, q *durable.Queue) {
				q.Handle("a", end.handle)
				go q.Run(t.Context())
				ref := add(t, q, durable.Job{Kind: "a", Timeout: time.Second})[0]
				time.Sleep(time.Minute)
				synctest.Wait()
				info, err := q.Get(t.Context(), ref)
				if what == "done" {
					require.ErrorIs(t, err, durable.ErrNotFound)
					return
				}
				require.NoError(t, err)
				require.Equal(t, end.want, durable.Info{State: info.State, Attempt: info.Attempt})
				if what == "timeout" {
					require.Equal(t, durable.ErrTimeout.Error(), info.LastError)
				}
			}, durable.WithMiddleware(noting("1", &seen)), durable.WithBackoff(func(int) time.Duration { return time.Hour }))
			require.Equal(t, []string{"1 adds 1", "1 begins", "1 ends"}, seen)
		})
	}
}

// A middleware may refuse a job, and may handle an error in the handler's place.
func TestMiddlewareDecides(t *testing.T) {
	errNo := errors.New("no")
	refuse := durable.Middleware{Add: func(next durable.AddFunc) durable.AddFunc {
		return func(ctx context.Context, jobs []durable.Job) ([]durable.Ref, error) {
			if jobs[0].Payload == nil {
				return nil, errNo
			}
			return next(ctx, jobs)
		}
	}}
	mend := durable.Middleware{Handle: func(next durable.Handler) durable.Handler {
		return func(ctx context.Context, a *durable.Attempt) (err error) {
			defer func() { recover() }()
			return next(ctx, a)
		}
	}}
	bubble(t, func(t *testing.T, _ *enginetest.Memory, q *durable.Queue) {
		q.Handle("a", func(context.Context, *durable.Attempt) error { panic("mended") })
		go q.Run(t.Context())
		ref, err := q.Add(t.Context(), durable.Job{Kind: "a"})
		require.Equal(t, errNo, err)
		require.Empty(t, ref)
		refs, err := q.AddMany(t.Context(), durable.Job{Kind: "a"}, durable.Job{Kind: "a"})
		require.Equal(t, errNo, err)
		require.Equal(t, []durable.Ref{"", ""}, refs)
		add(t, q, durable.Job{Kind: "a", Payload: []byte("p")})
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, int64(1), q.Stats().Done)
		require.Equal(t, int64(1), q.Stats().Added)
	}, durable.WithMiddleware(refuse, mend))
}

// RunNow adds by the middleware, as Add does. The handler gets the name of the schedule although
// a middleware adds other jobs with the same context.
func TestMiddlewareSeesRunNow(t *testing.T) {
	var seen []string
	var q *durable.Queue
	also := durable.Middleware{Add: func(next durable.AddFunc) durable.AddFunc {
		return func(ctx context.Context, jobs []durable.Job) ([]durable.Ref, error) {
			if jobs[0].Kind == "a" {
				_, err := q.Add(ctx, durable.Job{Kind: "b"})
				require.NoError(t, err)
			}
			return next(ctx, jobs)
		}
	}}
	bubble(t, func(t *testing.T, _ *enginetest.Memory, opened *durable.Queue) {
		q = opened
		of := map[string]string{}
		h := func(_ context.Context, a *durable.Attempt) error {
			of[a.Job.Kind] = a.Schedule + "," + a.Job.Meta["1"]
			require.Zero(t, a.Occurrence)
			return nil
		}
		q.Handle("a", h)
		q.Handle("b", h)
		require.NoError(t, q.SetSchedule(t.Context(), "s", "@yearly", durable.Job{Kind: "a"}))
		_, err := q.RunNow(t.Context(), "s")
		require.NoError(t, err)
		defer start(t, q)()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, map[string]string{"a": "s,a", "b": ",b"}, of)
	}, durable.WithMiddleware(noting("1", &seen), also), durable.WithConcurrency(1))
}

// AddJSON adds by the middleware, with the errors of Add.
func TestAddJSON(t *testing.T) {
	var seen []string
	bubble(t, func(t *testing.T, _ *enginetest.Memory, q *durable.Queue) {
		ctx := t.Context()
		for what, try := range map[string]func() (durable.Ref, error){
			"has a Payload": func() (durable.Ref, error) {
				return durable.AddJSON(ctx, q, durable.Job{Kind: "a", Payload: []byte{}}, 1)
			},
			"unsupported type": func() (durable.Ref, error) { return durable.AddJSON(ctx, q, durable.Job{Kind: "a"}, func() {}) },
		} {
			ref, err := try()
			require.ErrorIs(t, err, durable.ErrInvalid)
			require.ErrorContains(t, err, what)
			require.Empty(t, ref)
		}
		require.Empty(t, seen)
		_, err := durable.AddJSON(ctx, q, durable.Job{}, 1)
		require.ErrorContains(t, err, "the kind is empty")
		ref, err := durable.AddJSON(ctx, q, durable.Job{Kind: "a", After: time.Hour}, map[string]int{"n": 1})
		require.NoError(t, err)
		info, err := q.Get(ctx, ref)
		require.NoError(t, err)
		require.JSONEq(t, `{"n": 1}`, string(info.Job.Payload))
		require.Equal(t, []string{"1 adds 1", "1 adds 1"}, seen)
	}, durable.WithMiddleware(noting("1", &seen)))
}

func TestMiddlewareWrongUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		openWith := func(m ...durable.Middleware) *durable.Queue {
			q, err := durable.Open(t.Context(), enginetest.NewMemory().Open(t), durable.WithMiddleware(m...))
			require.NoError(t, err)
			return q
		}
		noHandler := durable.Middleware{Handle: func(durable.Handler) durable.Handler { return nil }}
		require.PanicsWithValue(t, "durable: WithMiddleware: Middleware 1 has neither Add nor Handle", func() { openWith(noHandler, durable.Middleware{}) })
		require.PanicsWithValue(t, "durable: Open: the Add of a Middleware returned nil", func() {
			openWith(durable.Middleware{Add: func(durable.AddFunc) durable.AddFunc { return nil }})
		})
		q := openWith(noHandler)
		defer q.Close()
		require.PanicsWithValue(t, `durable: Handle("a"): the Handle of a Middleware returned nil`, func() {
			q.Handle("a", func(context.Context, *durable.Attempt) error { return nil })
		})
		forgets := openWith(durable.Middleware{Add: func(next durable.AddFunc) durable.AddFunc {
			return func(ctx context.Context, jobs []durable.Job) ([]durable.Ref, error) {
				_, err := next(ctx, jobs)
				return nil, err
			}
		}})
		defer forgets.Close()
		require.PanicsWithValue(t, "durable: the Add of a Middleware returned 0 Refs for 1 jobs", func() {
			forgets.Add(t.Context(), durable.Job{Kind: "a"})
		})
		plain := openWith()
		require.NoError(t, plain.Close())
	})
}
