// Package admin shows a queue of durable jobs to who operates it, and lets them change it:
//
//	mux.Handle("/admin/jobs/", admin.NewHandler(q))
//
// The handler keeps no state. It asks the [durable.Queue] of its process, so an embedded
// engine can be operated while it runs, and a program that only adds jobs can show them, too.
// A browser gets a page, and command twjobs talks to it with -url.
//
// # The page
//
// It is where the handler is mounted, with the slash at the end. It shows what was added,
// begun, done and failed in a second, and how late, as curves; the backlog of each kind,
// with the age of its oldest job; workers, schedules, limits and pauses, and the jobs that
// are dead, run or wait, with their errors. With [Writable] it has buttons: redrive and
// delete, run now, cancel and stop; run now, pause and resume of schedules; pause and resume
// of a kind and of all; and what removes a limit. It loads nothing from elsewhere. The
// curves are of the process that answers, and are kept by the page while it is open: behind
// a balancer of load, mount it where one process answers.
//
// While somebody looks at it, it asks for the [Summary] every two seconds and for lists
// every five, and less often for what takes long: each at most a tenth of the time.
//
// # Who may do what
//
// Without [Writable] a handler changes nothing. It asks nobody who they are: put it behind
// whatever authenticates your operators, and tell it with [WithUser] who they are, for the
// log. A write needs the header [Header]. A page of another site can send none, so that an
// operator who looks at one cannot be made to write by it; requests that a browser marks as
// from another site are refused, too. Where a browser needs no login, as on localhost, set
// [WithHosts] besides.
//
// # JSON
//
// The last part of the path says what is asked for; without one it is the page. Times are
// RFC 3339, by the clock of the engine; durations are seconds. Errors are {"error": "..."}
// with a status that fits. A read takes 30 seconds at most, and counts ten minutes. While
// the queue is not healthy a read takes a second after that is known, which is 5 seconds at
// most. If it cannot be answered, its error is what Queue.Health says.
//
//	GET  list       [Listing]: ?state=waiting|running|dead &kind= &lane= &meta=name=value... &after= &n=100
//	GET  show       [Job], payload included: ?ref=
//	GET  summary    [Summary]: what cannot be read is empty, and says why
//	GET  counts     [Counts]; it reads all of the store
//	GET  schedules  a list of [Schedule]
//	GET  workers    a list of [Worker]
//	GET  limits     a list of [Limit]
//	GET  pauses     a list of durable.Pausable, {} for the whole queue
//	POST cancel     a list of [Result]: {"refs": [...]}, or {"key": "..."}
//	POST redrive    {"refs": [...]}; or {"all": true, "kind": "...", "lane": "..."}, whose result is one: how many, without a Ref
//	POST delete     {"refs": [...]}, of dead jobs
//	POST run-now    {"refs": [...]}
//	POST reschedule {"refs": [...], "at": "2030-01-02T15:04:05Z"}
//	POST stop       {"refs": [...]}: asks that the handlers of jobs that run end
//	POST pause, resume {"kind": "...", "lane": "..."}, or one of these, or for the whole queue {"all": true}
//	POST limit-set  {"names": [...], "limit": {"kind": "...", "perLane": true, "running": 3, "rate": 2.5, "burst": 10}}
//	POST limit-remove {"names": [...]}
//	POST schedule-pause, schedule-resume, schedule-run-now, schedule-delete {"names": [...]}
package admin
