// Package admin serves a page and JSON for the operators of a queue of durable jobs:
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
// with the age of its oldest job; workers, schedules, limits and pauses; and the jobs of
// each state, with their errors. With [WithWrites] it has buttons: redrive,
// delete, run now, cancel and stop for jobs; run now, pause and resume for schedules;
// pause and resume for a kind and for the queue; and remove for limits. It loads nothing
// from elsewhere. The curves show the process that answers. The page keeps them while it
// is open. With a load balancer in front, mount it where one process answers.
//
// An open page requests the [Summary] every two seconds and the lists every five. It
// requests answers that are slow twice in a row less often: each takes at most a tenth of
// the time.
//
// # Who may do what
//
// Without [WithWrites] a handler changes nothing. It has no authentication: put it behind
// your own, and set [WithUser] to log the names of operators. A write needs the header
// [Header]. A page of another site cannot send it, so such a page cannot write through an
// operator's browser; requests that a browser marks as from another site are refused,
// too. Where a browser needs no login, as on localhost, set [WithHosts] besides.
//
// # JSON
//
// The last part of the path names the answer; without one the handler serves the page.
// Times are RFC 3339, by the clock of the engine; durations are seconds. Errors are
// {"error": "..."} with a status that fits. A read takes 30 seconds at most, and counts
// ten minutes. If the queue is not healthy, which is known within 5 seconds, a read ends
// a second later. The error of such a read is that of Queue.Health.
//
//	GET  list       [Listing]: ?state=waiting|running|dead|done|canceled &kind= &lane= &meta=name=value... &after= &n=100
//	GET  show       [Job], payload included: ?ref=
//	GET  why        [Reason]: why a job has not run, ?ref=, or a schedule has no occurrence, ?schedule=
//	GET  await      [End]: how a job has ended, or after [AwaitFor] that it has not, ?ref=
//	GET  summary    [Summary]: what cannot be read is empty, and says why
//	GET  counts     [Counts]; it reads all of the store
//	GET  schedules  a list of [Schedule]
//	GET  workers    a list of [Worker]
//	GET  limits     a list of [Limit]
//	GET  pauses     a list of durable.Pause: {"kind": "...", "lane": "...", "since": "...", "until": "..."}; without kind and lane: the whole queue; without until: it lasts until resume
//	POST cancel     a list of [Result]: {"refs": [...]}, or {"key": "..."}
//	POST redrive    {"refs": [...]}; or {"all": true, "kind": "...", "lane": "..."}, whose result is one: how many, without a Ref
//	POST delete     {"refs": [...]}, of jobs that have ended
//	POST run-now    {"refs": [...]}
//	POST reschedule {"refs": [...], "at": "2030-01-02T15:04:05Z"}
//	POST stop       {"refs": [...]}: asks the handlers of running jobs to end
//	POST pause, resume {"kind": "...", "lane": "..."}, or one of these, or for the whole queue {"all": true}; with "for": 30 a pause ends after 30 s
//	POST limit-set  {"names": [...], "limit": {"kind": "...", "perLane": true, "running": 3, "rate": 2.5, "burst": 10}}
//	POST limit-delete {"names": [...]}
//	POST schedule-pause, schedule-resume, schedule-run-now, schedule-delete {"names": [...]}
package admin
