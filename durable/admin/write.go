package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/tickwheel/tickwheel/durable"
)

// write is what a request may ask for. It returns what came of each.
type write func(h *handler, ctx context.Context, c *Command) ([]Result, error)

const runs = "it runs, has ended, or was canceled before"

var writes = map[string]write{
	"cancel":  cancel,
	"redrive": redrive,
	"delete": func(h *handler, ctx context.Context, c *Command) ([]Result, error) {
		return each(c.Refs, "", func(r durable.Ref) (bool, error) { return true, h.q.Delete(ctx, r) })
	},
	"run-now": func(h *handler, ctx context.Context, c *Command) ([]Result, error) {
		return h.move(ctx, c.Refs, time.Time{})
	},
	"reschedule": func(h *handler, ctx context.Context, c *Command) ([]Result, error) {
		if c.At.IsZero() {
			return nil, fmt.Errorf("%w: reschedule needs at", durable.ErrInvalid)
		}
		return h.move(ctx, c.Refs, c.At)
	},
	"stop": func(h *handler, ctx context.Context, c *Command) ([]Result, error) {
		return each(c.Refs, "it does not run", func(r durable.Ref) (bool, error) { return h.q.CancelRunning(ctx, r) })
	},
	"pause": paused(pause),
	"resume": paused(func(q *durable.Queue, ctx context.Context, what durable.Pausable, _ float64) error {
		return q.Resume(ctx, what)
	}),
	"limit-set":       setLimit,
	"limit-delete":    named((*durable.Queue).DeleteLimit),
	"schedule-pause":  named((*durable.Queue).PauseSchedule),
	"schedule-resume": named((*durable.Queue).ResumeSchedule),
	"schedule-delete": named((*durable.Queue).DeleteSchedule),
	"schedule-run-now": named(func(q *durable.Queue, ctx context.Context, name string) error {
		_, err := q.RunNow(ctx, name)
		return err
	}),
}

// write does what a request asks for, if it may, and logs who has asked.
func (h *handler) write(r *http.Request, what string, do write) ([]Result, error) {
	if err := h.mayWrite(r); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if err != nil {
		return nil, &statusError{http.StatusBadRequest, "the command cannot be read: " + err.Error()}
	}
	var c Command
	if err := decode(body, &c); err != nil {
		return nil, &statusError{http.StatusBadRequest, "the command is no JSON as it has to be: " + err.Error()}
	}
	results, err := do(h, r.Context(), &c)
	done, wrong := 0, ""
	for _, res := range results {
		if res.Done {
			done++
		}
		if wrong == "" {
			wrong = res.Error
		}
	}
	if err != nil {
		wrong = err.Error()
	}
	about := []any{"user", h.user(r), "command", what, "asked", string(body), "done", done}
	if wrong != "" {
		about = append(about, "error", wrong)
	}
	h.log.Info("durable: an operator changes jobs", about...)
	return results, err
}

// decode reads a command. A word that it does not know might have been to narrow it down: such
// a command is refused, rather than done to all.
func decode(body []byte, c *Command) error {
	from := json.NewDecoder(bytes.NewReader(body))
	from.DisallowUnknownFields()
	if err := from.Decode(c); err != nil {
		return err
	}
	if _, err := from.Token(); err != io.EOF {
		return errors.New("the body has more than one command")
	}
	return nil
}

// mayWrite refuses what a page of another site can have a browser send: no such page can set
// a header, unless it is asked for before whether it may, and that is answered with no.
func (h *handler) mayWrite(r *http.Request) error {
	site := r.Header.Get("Sec-Fetch-Site")
	switch {
	case !h.writable:
		return &statusError{http.StatusForbidden, "this handler is read-only: make it with admin.WithWrites, or start twjobs serve with -write"}
	case r.Header.Get(Header) == "":
		return &statusError{http.StatusForbidden, "a write needs the header " + Header}
	case site != "" && site != "same-origin" && site != "none":
		return &statusError{http.StatusForbidden, "a page of another site may not write"}
	}
	return nil
}

// each calls do for each.
func each[S ~string](of []S, why string, do func(S) (bool, error)) ([]Result, error) {
	if len(of) == 0 {
		return nil, fmt.Errorf("%w: the command needs at least one ref or name", durable.ErrInvalid)
	}
	results := make([]Result, len(of))
	for i, one := range of {
		ok, err := do(one)
		results[i] = Result{Ref: string(one), Done: ok && err == nil}
		switch {
		case err != nil:
			results[i].Error = err.Error()
		case !ok:
			results[i].Why = why
		}
	}
	return results, nil
}

func named(do func(q *durable.Queue, ctx context.Context, name string) error) write {
	return func(h *handler, ctx context.Context, c *Command) ([]Result, error) {
		return each(c.Names, "", func(name string) (bool, error) { return true, do(h.q, ctx, name) })
	}
}

// paused is for what a command names. The whole queue has to be asked for: a command without
// a word is more likely a mistake.
func paused(do func(q *durable.Queue, ctx context.Context, what durable.Pausable, seconds float64) error) write {
	return func(h *handler, ctx context.Context, c *Command) ([]Result, error) {
		what := durable.Pausable{Kind: c.Kind, Lane: c.Lane}
		if c.All == (what != durable.Pausable{}) {
			return nil, fmt.Errorf("%w: set kind, lane, both, or all", durable.ErrInvalid)
		}
		return each([]string{what.String()}, "", func(string) (bool, error) { return true, do(h.q, ctx, what, c.For) })
	}
}

func pause(q *durable.Queue, ctx context.Context, what durable.Pausable, seconds float64) error {
	if seconds == 0 {
		return q.Pause(ctx, what)
	}
	return q.PauseFor(ctx, what, time.Duration(min(seconds, 1e9)*float64(time.Second)))
}

func setLimit(h *handler, ctx context.Context, c *Command) ([]Result, error) {
	if c.Limit == (durable.Limit{}) {
		return nil, fmt.Errorf("%w: limit-set needs a limit; use limit-delete to remove one", durable.ErrInvalid)
	}
	return each(c.Names, "", func(name string) (bool, error) { return true, h.q.SetLimit(ctx, name, c.Limit) })
}

func (h *handler) move(ctx context.Context, refs []durable.Ref, at time.Time) ([]Result, error) {
	return each(refs, runs, func(r durable.Ref) (bool, error) { return h.q.Reschedule(ctx, r, at) })
}

func cancel(h *handler, ctx context.Context, c *Command) ([]Result, error) {
	switch {
	case c.Key != "" && len(c.Refs) > 0:
		return nil, fmt.Errorf("%w: cancel takes refs or key, not both", durable.ErrInvalid)
	case c.Key != "":
		return each([]string{c.Key}, "no job that waits has the key", func(key string) (bool, error) { return h.q.CancelKey(ctx, key) })
	}
	results, err := each(c.Refs, runs, func(r durable.Ref) (bool, error) { return h.q.Cancel(ctx, r) })
	for i, res := range results {
		if res.Done || res.Error != "" {
			continue
		}
		switch info, err := h.q.Get(ctx, durable.Ref(res.Ref)); {
		case errors.Is(err, durable.ErrNotFound):
			results[i].Why = "it has ended, or was canceled before"
		case err == nil && info.State == durable.Running:
			results[i].Why = "it runs"
		case err == nil && info.Ended():
			results[i].Why = "it is " + info.State.String()
		}
	}
	return results, err
}

// maxFailed is after how many failures a redrive of all ends: a store that is cut off, or
// denies it, would let each of ten thousand fail, one damaged job does not hold up the others.
const maxFailed = 10

func redrive(h *handler, ctx context.Context, c *Command) ([]Result, error) {
	switch {
	case c.Key != "" || len(c.Names) > 0 || c.All == (len(c.Refs) > 0) || !c.All && c.Kind+c.Lane != "":
		return nil, fmt.Errorf("%w: redrive takes refs, or all with kind and lane", durable.ErrInvalid)
	case !c.All:
		return each(c.Refs, "", func(r durable.Ref) (bool, error) { return true, h.q.Redrive(ctx, r) })
	}
	res, failed, seen := Result{Done: true}, 0, map[durable.Ref]bool{}
	for i, err := range h.q.All(ctx, durable.Filter{State: durable.Dead, Kind: c.Kind, Lane: c.Lane}) {
		if err == nil && seen[i.Ref] {
			continue // it has died again, and would again, for ever
		}
		if seen[i.Ref] = true; err == nil {
			err = h.q.Redrive(ctx, i.Ref)
		}
		switch {
		case errors.Is(err, durable.ErrNotFound): // another has been quicker
		case err != nil:
			res.Done, res.Error = false, fmt.Sprintf("%s: %v", i.Ref, err)
			if !errors.Is(err, durable.ErrExists) {
				failed++
			}
			if ctx.Err() != nil { // the cause says what bound there was
				res.Error = context.Cause(ctx).Error()
			}
			if failed == maxFailed || ctx.Err() != nil {
				return []Result{res}, nil
			}
		default:
			res.Jobs++
		}
	}
	return []Result{res}, nil
}
