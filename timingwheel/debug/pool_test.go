package debug

import (
	"encoding/json"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"

	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

// A full pool, in every form.
func TestPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool.New(2, 3, pool.Wait)
		w := timingwheel.New(timingwheel.WithExecutor(p))
		defer w.Stop()
		h := NewHandler()
		h.AddPool("workers", p)
		require.Equal(t, "no wheels\n\npool \"workers\": 0 of 2 workers busy, 0 of 3 queued, 0 waiting on wheels\n", get(h, "/").Body.String())

		release := make(chan bool)
		end := sync.OnceFunc(func() { close(release) })
		defer end()
		for range 9 {
			w.Schedule(0, func() { <-release })
		}
		synctest.Wait()
		h.Add("w", w)
		h.AddPool("a\xff\x1b", pool.New(1, 0, pool.Wait))
		full := poolFigures{"workers", pool.Stats{Workers: 2, Queue: 3, Running: 2, Queued: 3, Waiting: 4}}
		idle := poolFigures{`a\xff` + "\x1b", pool.Stats{Workers: 1}}
		var form, one, event answer
		require.NoError(t, json.Unmarshal(get(h, "/?format=json").Body.Bytes(), &form))
		require.Equal(t, []poolFigures{full, idle}, form.Pools)
		require.Equal(t, int64(4), form.Wheels[0].Stats.Waiting)
		require.NoError(t, json.Unmarshal(get(h, "/?format=json&wheel=w").Body.Bytes(), &one))
		require.Len(t, one.Wheels, 1)
		require.Empty(t, one.Pools)
		require.NotContains(t, get(h, "/?format=text&wheel=w").Body.String(), "pool")
		require.Regexp(t, `(?s)\nnext: .*\n\npool "workers": 2 of 2 workers busy, 3 of 3 queued, 4 waiting on wheels\n`+
			`pool "a\\\\xff\\x1b": 0 of 1 workers busy, 0 of 0 queued, 0 waiting on wheels\n$`, get(h, "/").Body.String())
		require.NoError(t, json.Unmarshal(h.event("w")[len("retry: 1000\ndata: "):], &event))
		require.Equal(t, []poolFigures{full, idle}, event.Pools)

		end()
		synctest.Wait()
		p.Close()
		require.Contains(t, get(h, "/").Body.String(), "pool \"workers\": 0 of 2 workers busy, 0 of 3 queued, 0 waiting on wheels, closed\n")
	})
}

// Pools come and go, beside wheels of the same names.
func TestAddAndRemovePool(t *testing.T) {
	h := NewHandler()
	a, b := pool.New(1, 0, pool.Wait), pool.New(2, 0, pool.Wait)
	h.add("a", newFake())
	h.AddPool("a", a)
	h.AddPool("b", b)
	h.AddPool("a", b)
	workers := func() (n []int) {
		for _, p := range figuresOf(h.list().pools) {
			n = append(n, p.Stats.Workers)
		}
		return n
	}
	require.Equal(t, []int{2, 2}, workers())
	h.AddPool("a", a)
	require.Equal(t, []int{1, 2}, workers())
	h.RemovePool("c")
	h.RemovePool("a")
	require.Equal(t, []int{2}, workers())
	require.Len(t, h.wheels, 1, "the wheel is another thing")
	h.Remove("b")
	require.Equal(t, []int{2}, workers())
	h.AddPool("x\xff", a)
	h.RemovePool("x\xff")
	require.Equal(t, []int{2}, workers())
	require.PanicsWithValue(t, "debug: AddPool: nil pool", func() { h.AddPool("a", nil) })
	require.PanicsWithValue(t, "debug: AddPool: empty name", func() { h.AddPool("", a) })
}

// Pools are in the events, whether or not there is a wheel.
func TestPoolInEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHandler()
		h.interval = 400 * time.Millisecond
		c, leave := stream(h, "", nil)
		defer leave()
		require.Empty(t, c.next(h).Pools)
		h.AddPool("a", pool.New(3, 7, pool.Wait))
		require.Equal(t, []poolFigures{{"a", pool.Stats{Workers: 3, Queue: 7}}}, c.next(h).Pools)
		h.RemovePool("a")
		require.Empty(t, c.next(h).Pools)
	})
}
