package debug

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// client is what is behind a stream in a bubble: it takes what is written.
type client struct {
	header http.Header
	wrote  func() // may block, as a client does that does not read

	mu     sync.Mutex
	events []received
}

// received is an event as the page sees it.
type received struct {
	Wheels []entry
	Pools  []poolFigures
	Shown  *shown
}

func (c *client) Header() http.Header { return c.header }
func (c *client) WriteHeader(int)     {}
func (c *client) Flush()              {}
func (c *client) Write(p []byte) (int, error) {
	if c.wrote != nil {
		c.wrote()
	}
	var e received
	_, data, _ := strings.Cut(string(p), "data: ")
	err := json.Unmarshal([]byte(data), &e)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, e)
	return len(p), err
}

func (c *client) received() []received {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.events
}

// next returns an event that was made after the call.
func (c *client) next(h *Handler) received {
	time.Sleep(2 * h.interval)
	synctest.Wait()
	return c.received()[len(c.received())-1]
}

// stream opens a stream in a bubble, and returns its client and what closes it.
func stream(h *Handler, query string, wrote func()) (*client, context.CancelFunc) {
	ctx, leave := context.WithCancel(context.Background())
	c := &client{header: http.Header{}, wrote: wrote}
	go h.ServeHTTP(c, httptest.NewRequestWithContext(ctx, http.MethodGet, "/?format=events"+query, nil))
	return c, leave
}

// Nothing is done while nobody watches, and no goroutine is left when the last one has
// gone: otherwise this bubble would not end.
func TestNobodyLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHandler()
		h.interval = 400 * time.Millisecond
		f := newFake()
		h.add("a", f)
		time.Sleep(time.Hour)
		require.Zero(t, f.asked.Load()+f.snapshots.Load())

		first, leaveFirst := stream(h, "", nil)
		second, leaveSecond := stream(h, "", nil)
		time.Sleep(10 * time.Second)
		leaveFirst()
		synctest.Wait()
		require.InDelta(t, 26, len(first.received()), 1)
		require.InDelta(t, 26, f.snapshots.Load(), 1)
		time.Sleep(10 * time.Second)
		leaveSecond()
		synctest.Wait()
		require.InDelta(t, 51, len(second.received()), 1)

		n := f.snapshots.Load()
		require.Nil(t, h.rest)
		time.Sleep(time.Hour)
		require.Equal(t, n, f.snapshots.Load())

		third, leaveThird := stream(h, "", nil) // and again
		time.Sleep(time.Second)
		leaveThird()
		require.Len(t, third.received(), 3)
	})
}

// However many watch, each watched wheel is sampled once. An unwatched wheel is only queried for
// cheap figures.
func TestManyWatchers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHandler()
		h.interval = 400 * time.Millisecond
		a, b := newFake(), newFake()
		b.stats.Pending, b.stats.Closed, b.stats.HeldUp = 9, true, time.Second
		h.add("a", a)
		h.add("b", b)
		var clients []*client
		for range 100 {
			c, leave := stream(h, "&wheel=a", nil)
			defer leave()
			clients = append(clients, c)
		}
		time.Sleep(4 * time.Second)
		require.InDelta(t, 11, a.snapshots.Load(), 1)
		require.Zero(t, b.snapshots.Load())
		require.InDelta(t, 100+10, b.asked.Load(), 1, "once for each at the beginning, and then once for all")
		for _, c := range clients {
			require.InDelta(t, 11, len(c.received()), 1)
		}
		last := clients[0].received()[9]
		require.Equal(t, []entry{{"a", 1234, false, 0}, {"b", 9, true, time.Second}}, last.Wheels)
		require.Equal(t, "a", last.Shown.Name)
		require.Equal(t, int64(6000), last.Shown.Stats.Expired)
		require.Len(t, last.Shown.Rings, 2)
		require.Len(t, last.Shown.Rings[0].Segments, 256)
		require.Equal(t, 1024*time.Microsecond, last.Shown.Stats.Lateness.P50)
	})
}

// Watchers of wheels that do not exist, each with a name of its own, do not slow down
// those of a wheel that does.
func TestManyUnknownNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHandler()
		h.interval = 400 * time.Millisecond
		var fakes []*fake
		for n := range 20 {
			f := newFake()
			f.statsCost = 100 * time.Microsecond
			h.add(fmt.Sprint("wheel ", n), f)
			fakes = append(fakes, f)
		}
		c, leave := stream(h, "&wheel=wheel+7", nil)
		defer leave()
		lost, leaveLost := stream(h, "&wheel=nobody", nil)
		defer leaveLost()
		strangers := 200
		if testing.Short() {
			strangers = 60
		}
		for n := range strangers {
			_, leave := stream(h, fmt.Sprint("&wheel=nobody+", n), nil)
			defer leave()
		}
		time.Sleep(5 * time.Second) // the watchers cost most when they begin
		before, asked := len(c.received()), fakes[3].asked.Load()
		time.Sleep(20 * time.Second)
		require.InDelta(t, 50, len(c.received())-before, 3)
		require.InDelta(t, 50, fakes[3].asked.Load()-asked, 3, "once for each turn")
		require.Equal(t, "wheel 7", c.received()[before].Shown.Name)
		last := lost.received()[len(lost.received())-1]
		require.Nil(t, last.Shown)
		require.Len(t, last.Wheels, 20)
	})
}

func TestWheelComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHandler()
		h.interval = 400 * time.Millisecond
		c, leave := stream(h, "&wheel=a", nil)
		defer leave()
		require.Nil(t, c.next(h).Shown)
		h.add("b", newFake())
		require.Nil(t, c.next(h).Shown)
		h.add("a", newFake())
		require.Equal(t, "a", c.next(h).Shown.Name)
		h.Remove("a")
		require.Nil(t, c.next(h).Shown)
		require.Len(t, c.next(h).Wheels, 1)
	})
}

// If a sample takes long, samples are rare: at most 2 % of the time, whoever asks for
// them. Events come as often as before.
func TestCostlySamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHandler()
		h.interval = 400 * time.Millisecond
		f := newFake()
		f.cost = 200 * time.Millisecond
		h.add("a", f)
		c, leave := stream(h, "", nil)
		time.Sleep(10 * time.Minute)
		require.LessOrEqual(t, f.snapshots.Load(), int64(60))
		require.Greater(t, f.snapshots.Load(), int64(50))
		require.InDelta(t, 1500, len(c.received()), 50)
		leave()
		synctest.Wait()

		// Not at the same time as the stream: a goroutine that waits for a mutex keeps the
		// time of a bubble from passing.
		before := f.snapshots.Load()
		for range 600 {
			get(h, "/?format=json")
			time.Sleep(time.Second)
		}
		require.LessOrEqual(t, f.snapshots.Load()-before, int64(60))
	})
}

// One run that takes long by chance does not make the next one late.
func TestCosts(t *testing.T) {
	var c costs
	require.Zero(t, c.pause())
	c.add(10)
	require.Equal(t, time.Duration(10*share), c.pause(), "the first is all that is known")
	for range 10 {
		c.add(4)
		c.add(5)
		c.add(1000)
		require.Equal(t, time.Duration(4*share), c.pause())
	}
	for range 3 {
		c.add(1000)
	}
	require.Equal(t, time.Duration(1000*share), c.pause(), "no chance")
}

// A client that does not read delays nobody. When it reads again, it gets the latest
// event.
func TestSlowClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHandler()
		h.interval = 400 * time.Millisecond
		f := newFake()
		h.add("a", f)
		slow, leaveSlow := stream(h, "", func() { time.Sleep(time.Minute) })
		quick, leaveQuick := stream(h, "", nil)
		time.Sleep(5*time.Minute + time.Second)
		require.InDelta(t, 753, len(quick.received()), 2)
		require.Len(t, slow.received(), 5)
		leaveSlow()
		leaveQuick()
		time.Sleep(time.Hour) // the slow one sees it late
	})
}

// A client that is stuck is dropped. (The first event is larger than all buffers. With
// more events it would depend on the machine: where they cost much, they are rare.)
func TestStuckClient(t *testing.T) {
	h := NewHandler()
	h.interval, h.patience = time.Millisecond, 200*time.Millisecond
	h.add(strings.Repeat("a", 1<<20), newFake())
	ended := make(chan bool, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(rw, r)
		ended <- true
	}))
	server.Config.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		require.NoError(t, conn.(*net.TCPConn).SetWriteBuffer(1<<12))
		return ctx
	}
	server.Start()
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(1<<12))
	fmt.Fprint(conn, "GET /?format=events HTTP/1.1\r\nHost: localhost\r\n\r\n")
	select {
	case <-ended:
	case <-time.After(2 * time.Minute):
		require.Fail(t, "it is still there")
	}
	require.Empty(t, h.everyone())
}

// The timeouts of a server do not end the stream. It ends when the client goes away. On a
// busy machine the request itself may come too late. Then a longer timeout must do.
func TestServerTimeouts(t *testing.T) {
	timeout := 400 * time.Millisecond
	for !streamOutlives(t, timeout) {
		timeout *= 4
		require.Less(t, timeout, 5*time.Minute)
	}
}

// streamOutlives checks that a stream goes on after the timeouts of its server. It
// reports false if the server has ended it before the first event.
func streamOutlives(t *testing.T, timeout time.Duration) bool {
	h := NewHandler()
	h.interval = 50 * time.Millisecond
	h.add("a", newFake())
	server := httptest.NewUnstartedServer(h)
	server.Config.ReadTimeout = timeout
	server.Config.WriteTimeout = timeout
	server.Config.IdleTimeout = timeout
	server.Start()
	defer server.Close()
	resp, err := http.Get(server.URL + "/?format=events")
	if err != nil {
		t.Log(err)
		return false
	}
	defer resp.Body.Close()
	require.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
	require.Len(t, h.everyone(), 1)
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	events := 0
	for start := time.Now(); time.Since(start) < 5*timeout/2 || events < 3; {
		require.True(t, lines.Scan(), "after %v: %v", time.Since(start), lines.Err())
		if strings.HasPrefix(lines.Text(), "data: ") {
			events++
		}
	}
	resp.Body.Close()
	require.Eventually(t, func() bool { return len(h.everyone()) == 0 }, 2*time.Minute, time.Millisecond)
	return true
}
