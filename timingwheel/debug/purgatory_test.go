package debug

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/purgatory"
	"github.com/tickwheel/tickwheel/timingwheel"

	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

// A purgatory, in every form.
func TestPurgatory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New()
		defer w.Stop()
		p := purgatory.New[string](w)
		h := NewHandler()
		h.AddPurgatory("polls", p)
		h.AddPurgatory("a\xff\x1b", purgatory.New[int](w))
		require.Equal(t, "no wheels\n\n"+
			"purgatory \"polls\": 0 parked, keys: 0; so far 0 satisfied, 0 expired, 0 canceled, 0 closed, 0 questions\n"+
			`purgatory "a\\xff\x1b": 0 parked, keys: 0; so far 0 satisfied, 0 expired, 0 canceled, 0 closed, 0 questions`+"\n",
			get(h, "/").Body.String())

		const evil = "<b>\x1b\xff"
		no := func() bool { return false }
		for i, key := range []string{evil, "b", evil, "c", evil, "b", "gone", "late"} {
			d := time.Hour
			if key == "late" {
				d = 10 * time.Millisecond
			}
			_, err := p.Park(d, []func() bool{no, nil}[i/6], nil, key)
			require.NoError(t, err)
		}
		require.Equal(t, 1, p.Notify("gone"))
		time.Sleep(time.Second)
		h.Add("w", w)
		keys := []purgatory.KeyCount{{Key: "<b>\x1b" + `\xff`, Pending: 3}, {Key: "b", Pending: 2}, {Key: "c", Pending: 1}}
		polls := purgatoryFigures{"polls", time.Second, purgatory.Stats{
			Parked: 8, Satisfied: 1, Expired: 1, Pending: 6, Watched: 6, Keys: 3, Checks: 12,
		}, keys}
		empty := purgatoryFigures{`a\xff` + "\x1b", time.Second, purgatory.Stats{}, []purgatory.KeyCount{}}
		var form, one, event answer
		require.NoError(t, json.Unmarshal(get(h, "/?format=json").Body.Bytes(), &form))
		require.Equal(t, []purgatoryFigures{polls, empty}, form.Parked)
		require.NoError(t, json.Unmarshal(get(h, "/?format=json&wheel=w").Body.Bytes(), &one))
		require.Len(t, one.Wheels, 1)
		require.Empty(t, one.Parked)
		require.NotContains(t, get(h, "/?format=text&wheel=w").Body.String(), "purgatory")
		require.Contains(t, get(h, "/").Body.String(), "\n\n"+
			`purgatory "polls": 6 parked, keys: 3; so far 1 satisfied, 1 expired, 0 canceled, 0 closed, 12 questions`+"\n"+
			`  keys with most: 3 "<b>\x1b\\xff", 2 "b", 1 "c"`+"\n")
		require.NoError(t, json.Unmarshal(h.event("w")[len("retry: 1000\ndata: "):], &event))
		require.Equal(t, []purgatoryFigures{polls, empty}, event.Parked)
	})
}

// The words for one key suit any number of them.
func TestPurgatoryOfOneKey(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	p := purgatory.New[string](w)
	h := NewHandler()
	h.AddPurgatory("polls", p)
	_, err := p.Park(time.Hour, nil, nil, "a")
	require.NoError(t, err)
	require.Equal(t, "no wheels\n\n"+
		"purgatory \"polls\": 1 parked, keys: 1; so far 0 satisfied, 0 expired, 0 canceled, 0 closed, 0 questions\n"+
		"  keys with most: 1 \"a\"\n",
		get(h, "/").Body.String())
}

// A threshold has no keys, and none is requested.
func TestThreshold(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	th := purgatory.NewThreshold[int](w)
	h := NewHandler()
	h.AddPurgatory("offsets", th)
	for v := range 5 {
		_, err := th.Park(v, time.Hour, nil)
		require.NoError(t, err)
	}
	require.Equal(t, 2, th.Advance(2))
	require.Equal(t, "no wheels\n\nthreshold \"offsets\": 2 parked; so far 3 satisfied, 0 expired, 0 canceled, 0 closed\n", get(h, "/").Body.String())
	var form answer
	require.NoError(t, json.Unmarshal(get(h, "/?format=json").Body.Bytes(), &form))
	require.Equal(t, th.Stats(), form.Parked[0].Stats)
	require.Nil(t, form.Parked[0].Keys)
	require.PanicsWithValue(t, "purgatory: Stats: the Threshold was not made by NewThreshold", func() { h.AddPurgatory("a", new(purgatory.Threshold[int])) })
}

// However many keys there are, and however long, what is sent is small.
func TestTopKeys(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	p := purgatory.New[string](w)
	for i := range 50 {
		key := fmt.Sprint(i, strings.Repeat("ä", 1<<16))
		for range i + 1 {
			p.Park(time.Hour, nil, nil, key)
		}
	}
	h := NewHandler()
	h.AddPurgatory("p", p)
	figures := h.parked[0].figures()
	require.Len(t, figures.Keys, 10)
	require.Equal(t, purgatory.KeyCount{Key: "49" + strings.Repeat("ä", 98) + "…", Pending: 50}, figures.Keys[0])
	require.Less(t, len(h.event("")), 4000)
	require.Equal(t, strings.Repeat("ä", 100), clip(strings.Repeat("ä", 100)))
}

// counted counts how often its keys are.
type counted struct{ tops int }

func (c *counted) Stats() purgatory.Stats { return purgatory.Stats{} }

func (c *counted) Top(int) []purgatory.KeyCount {
	c.tops++
	time.Sleep(20 * time.Millisecond)
	return nil
}

// To count the keys takes at most one part in share of a processor, however many ask.
func TestCostOfKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counted{}
		h := NewHandler()
		h.AddPurgatory("c", c)
		for start := time.Now(); time.Since(start) < 10*time.Second; time.Sleep(time.Millisecond) {
			get(h, "/?format=json")
		}
		require.Equal(t, 10, c.tops)
	})
}

// Purgatories come and go, beside wheels and pools of the same names.
func TestAddAndRemovePurgatory(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	a, b := purgatory.New[int](w), purgatory.New[string](w)
	b.Park(time.Hour, nil, nil, "k")
	h := NewHandler()
	h.add("a", newFake())
	h.AddPool("a", pool.New(1, 0, pool.Wait))
	h.AddPurgatory("a", a)
	h.AddPurgatory("b", b)
	h.AddPurgatory("a", b)
	pending := func() (n []int64) {
		for _, p := range figuresOfPurgatories(h.parked) {
			n = append(n, p.Stats.Pending)
		}
		return n
	}
	require.Equal(t, []int64{1, 1}, pending())
	h.AddPurgatory("a", a)
	require.Equal(t, []int64{0, 1}, pending())
	h.RemovePurgatory("c")
	h.RemovePurgatory("a")
	require.Equal(t, []int64{1}, pending())
	require.Len(t, h.wheels, 1, "the wheel is another thing")
	require.Len(t, h.pools, 1)
	h.Remove("b")
	h.RemovePool("b")
	require.Equal(t, []int64{1}, pending())
	h.AddPurgatory("x\xff", a)
	h.RemovePurgatory("x\xff")
	require.Equal(t, []int64{1}, pending())
	require.PanicsWithValue(t, "debug: AddPurgatory: nil purgatory", func() { h.AddPurgatory("a", nil) })
	require.PanicsWithValue(t, "debug: AddPurgatory: empty name", func() { h.AddPurgatory("", a) })
	require.Panics(t, func() { h.AddPurgatory("a", new(purgatory.Purgatory[int])) }, "one that New did not make")
	require.Panics(t, func() { h.AddPurgatory("a", (*purgatory.Purgatory[int])(nil)) })
	require.Equal(t, []int64{1}, pending())
}
