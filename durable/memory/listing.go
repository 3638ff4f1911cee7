package memory

import (
	"context"
	"maps"
	"slices"

	"github.com/tickwheel/tickwheel/durable/driver"
)

func (e *engine) Page(_ context.Context, f driver.Filter, after driver.Cursor, n int) ([]driver.Info, driver.Cursor, error) {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	cursorOf := func(i driver.Info) driver.Cursor { return driver.Cursor{At: i.Due, Ref: i.Ref} }
	var all []driver.Info
	for ref := range e.m.jobs {
		j, _ := e.m.find(ref)
		if i := j.info(ref); i.State != 0 && f.Match(i) && cursorOf(i).Compare(after) > 0 {
			all = append(all, i)
		}
	}
	slices.SortFunc(all, func(a, b driver.Info) int { return cursorOf(a).Compare(cursorOf(b)) })
	if len(all) <= n {
		return all, driver.Cursor{}, e.open()
	}
	return all[:n], cursorOf(all[n-1]), e.open()
}

func (e *engine) Backlog(context.Context) (b driver.Backlog, err error) {
	m, kinds := e.m, map[string]*driver.Overdue{}
	m.mu.Lock()
	defer m.mu.Unlock()
	for ref, j := range m.jobs {
		if j.state != driver.Waiting {
			continue
		}
		b.Waiting++
		if j.rec.Due.After(m.now()) {
			continue
		}
		o := kinds[j.rec.Kind]
		if o == nil {
			o = &driver.Overdue{Kind: j.rec.Kind, Handled: m.handled(j.rec.Kind)}
			kinds[o.Kind] = o
		}
		if o.Jobs++; o.Due.IsZero() || j.rec.Due.Before(o.Due) {
			o.Oldest, o.Due = ref, j.rec.Due
		}
	}
	for _, o := range kinds {
		b.Kinds = append(b.Kinds, *o)
	}
	slices.SortFunc(b.Kinds, func(a, b driver.Overdue) int { return a.Due.Compare(b.Due) })
	return b, e.open()
}

func (e *engine) Workers(context.Context) (all []driver.WorkerInfo, err error) {
	m := e.m
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.workers)) {
		kinds := m.workers[name].c.Kinds.All()
		w := driver.WorkerInfo{Name: name, Until: m.now().Add(m.lease(name)), Kinds: kinds, AllKinds: len(kinds)}
		for _, j := range m.jobs {
			if j.state != driver.Running || j.by != name {
				continue
			}
			if w.Jobs++; w.Since.IsZero() || j.rec.Due.Before(w.Since) {
				w.Since = j.rec.Due
			}
		}
		if w.Jobs > 0 || m.lease(name) > 0 {
			all = append(all, w)
		}
	}
	return all, e.open()
}
