// Package debug serves a page that shows timing wheels at work. It draws each level of a
// wheel as a ring. The page also has the rates, the pending count, the lateness of the
// last minute and since the start, and the next deadlines. If the executor has held the
// driver up for a second or longer, the page says for how long, and which function does
// it. Pools have a list of their own, since several wheels may share one. Purgatories
// have one too, with the ten keys that have the most parked operations. Queues of durable
// jobs have a page of their own, that of durable/admin.
//
//	h := debug.NewHandler()
//	h.Add("requests", w)
//	h.AddPool("workers", pool)
//	h.AddPurgatory("polls", polls)
//	mux.Handle("/debug/timingwheel/", h)
//
// The package is a module of its own, so that the core has neither a page nor a web server. It
// registers nothing by itself. Mount the handler where you want it.
//
// # Forms
//
// The query chooses the form:
//
//	?format=html     the page; what a browser gets
//	?format=text     plain text; what curl gets
//	?format=json     an object with the arrays wheels, pools and purgatories, see below
//	?format=profile  the profile of a wheel that has one, for go tool pprof; see below
//	?format=events   the stream of server-sent events behind the page
//	?wheel=name      that wheel only, without pools and purgatories; for the page and
//	                 the events, the one to show first
//
// Without a query the Accept header chooses: text/html, text/event-stream or
// application/json, the first of these that is in it, and otherwise plain text.
//
// In the JSON form, each wheel is an object with a name, stats, recent and a snapshot:
// stats and snapshot are a [timingwheel.Stats] and a [timingwheel.Snapshot] as
// encoding/json writes them. Recent has a span in nanoseconds and the lateness within it,
// a [timingwheel.Histogram]; see below. Each pool has a name and stats, a
// [pool.Stats]. Each purgatory has a name, its age in nanoseconds since it was
// added, stats, a [purgatory.Stats], and keys, an array of [purgatory.KeyCount]: those
// with most; null for a [purgatory.Threshold]. The events may change with the page. All
// URLs in the page are queries, so it works below any prefix, with and without a slash at its
// end.
//
// # The profile
//
// It is what [timingwheel.TimingWheel.WriteProfile] writes, if the wheel was made with
// [timingwheel.WithProfileRate]. The page links to it. The tool reads it from the address:
//
//	go tool pprof 'http://localhost:8377/debug/timingwheel/?format=profile&wheel=requests'
//
// # Lateness of the last minute
//
// A wheel counts lateness since its start. The handler compares samples to find the
// lateness of the last minute. It takes samples only while somebody watches, or requests
// another form at least once a minute. Until there are samples of a minute, recent covers
// less. In the first one its span is zero.
//
// # Security
//
// Only GET and HEAD are served, and no request can change a wheel. But a reader of the
// page learns about the load of the program, and adds to it. There is no password. As
// with net/http/pprof, do not expose the page to the world.
//
// Many programs bind such pages to a loopback address for this reason. A web site can get
// around that with DNS rebinding: it gives its own name the address 127.0.0.1, and then
// the browser of somebody who visits the site lets its scripts read the page. So a
// request that comes in on a loopback address must name, in its Host header, an IP
// address, localhost, or a name without a dot; another one gets status 403. The packages
// net/http/pprof and expvar answer to any name. They could not do otherwise without
// breaking programs that use them; this package can, and its page is meant for browsers.
// If a proxy on the same machine passes other names on, let it set the Host header, or
// set Request.Host in a handler before this one. On other addresses no name is checked,
// because the handler does not know which ones are right.
//
// # Cost
//
// While nobody watches there is no goroutine and no sampling. Only the last samples are
// kept. So the curve of the pending count begins when the page is opened. It has a gap
// for the time in which its tab was hidden or paused.
//
// While somebody watches, one goroutine takes a sample of each wheel that is watched
// every 250 ms, however many watch. To watch a wheel that does not exist costs no sample.
// A sample is a pass over all that is pending, in slices, by
// [timingwheel.TimingWheel.Snapshot]. If that takes long, samples are rarer, so that
// those of a wheel take at most 2 % of one processor. Requests for the other forms share
// the samples. Their figures are up to 125 ms old, and older where samples are rarer. The
// keys of each purgatory are counted under the same limit, whether or not a wheel is
// watched; [purgatory.Purgatory.Top] says what that costs. A
// slow client misses events. A client that is stuck for ten seconds is dropped.
package debug
