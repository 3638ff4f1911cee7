// Package debug serves a page that shows timing wheels at work: each level as a ring
// with its slots shaded by how much they hold and a hand at its current time, and
// beside it the rates, the pending count, the lateness, the next deadlines.
//
//	h := debug.NewHandler()
//	h.Add("requests", w)
//	mux.Handle("/debug/timingwheel/", h)
//
// Importing the package registers nothing; mount the handler where you want it. Do
// not expose it to the world: as with net/http/pprof, who reads the page learns about
// the program's load, and costs it some. There is no password in it.
//
// # Forms
//
// The form is chosen by the query:
//
//	?format=html     the page; what a browser gets
//	?format=text     plain text; what curl gets
//	?format=json     an array of objects with a name, stats and a snapshot
//	?format=events   the stream of server-sent events behind the page
//	?wheel=name      that wheel only; of the page and the events, the one to begin with
//
// Without a query the Accept header chooses: text/html, text/event-stream or
// application/json, the first of these that is in it, and otherwise plain text.
//
// In the JSON form, stats and snapshot are a [timingwheel.Stats] and a
// [timingwheel.Snapshot], as encoding/json writes them. The events are the page's own
// business and may change with it. All URLs in the page are queries, so that it works
// below any prefix, with a slash at its end and without.
//
// Only GET and HEAD are served, and nothing that is asked for can change a wheel.
//
// # Cost
//
// While nobody looks: nothing. No goroutine, no sample, no history; so the curve of
// the pending count begins when the page is opened, and has a gap for the time in
// which its tab was hidden or paused.
//
// While anybody does: one goroutine, which takes a sample of each wheel that is
// watched every 250 ms, however many watch. A sample is a pass over all that is
// pending, in slices, by [timingwheel.TimingWheel.Snapshot]; where that takes long,
// samples become rarer, so that they take 2 % of one processor at the most. Those who
// ask for the other forms share them, and can double that; what they get is up to 125 ms
// old, and older where samples have become rarer. A client that is slow
// misses events, and one that is stuck for ten seconds is dropped.
package debug
