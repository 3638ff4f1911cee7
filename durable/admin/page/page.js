"use strict";
// The page behind index.html: it shows what the handler answers, while somebody looks at it.

// ---- How it stands with the connection ----

let held = false; // by the button
let lastAnswer = null; // the last summary
let trouble = ""; // why there is no newer one
const slow = 6e3; // ms without an answer that the page speaks of

function state(name, text) {
  $("connection").dataset.state = name;
  setText($("connection"), text);
}

function showState() {
  const waits = summaries.began && performance.now() - summaries.began > slow;
  const ofThen = lastAnswer ? ` What the page shows is of ${moment(lastAnswer.now)}.` : "";
  let text = "";
  if (held) state("paused", "paused");
  else if (trouble) {
    state("lost", "no answer, trying again");
    text = `The queue does not answer: ${trouble}.${ofThen}`;
  } else if (waits) {
    state("lost", "waiting for an answer");
    text = `The queue has not answered for some seconds: it is busy, or its engine is out of reach.${ofThen}`;
  } else if (lastAnswer?.healthy) {
    state("lost", "not healthy");
    text = `Not healthy: ${lastAnswer.healthy}`;
  } else if (lastAnswer?.backlogError) {
    state("lost", "not all is known");
    text = `What waits cannot be read: ${lastAnswer.backlogError}`;
  } else if (lastAnswer) {
    state("live", "live");
    if (pauses.some((p) => !p.kind && !p.lane)) text = "The whole queue is paused: no attempt begins until somebody resumes it.";
  }
  $("main").classList.toggle("stale", !!(trouble || waits));
  $("note").hidden = !text;
  setText($("note"), text);
}

setInterval(showState, 1000);

function resume() {
  for (const poll of Poll.all) {
    if (held || document.visibilityState === "hidden") poll.stop();
    else poll.start();
  }
  showState();
}

document.addEventListener("visibilitychange", resume);

$("hold").addEventListener("click", () => {
  held = !held;
  setText($("hold"), held ? "Resume page" : "Pause page");
  resume();
});

let writable = false;

// ---- What is shown ----

function showSummary(s) {
  clock.set(s.now);
  trouble = "";
  lastAnswer = s;
  setWritable(s.writable);
  remember(s);
  drawCharts();
  const oldest = s.kinds.reduce((age, k) => Math.max(age, k.age), 0);
  const due = s.kinds.reduce((n, k) => n + k.jobs, 0);
  const nobody = s.kinds.filter((k) => !k.handled).length;
  const known = (text) => (s.backlogError ? "–" : text);
  list($("queue"), [
    ["waiting, about", known(count(s.waiting))],
    ["of these due", known(count(due))],
    ["oldest due for", due ? duration(oldest) : "–"],
    ["kinds nobody runs", known(count(nobody)), nobody > 0],
  ]);
  list($("process"), [
    ["running", count(s.running)],
    ...(s.stuck ? [["of these hang", count(s.stuck), true]] : []),
    ["fetched, not ended", count(s.held)],
    ["begun", count(s.attempts)],
    ["died", count(s.dead)],
    ["leases lost", count(s.leaseLost)],
    ["claimed before due by", duration(s.claimAhead)],
  ]);
  if (!s.backlogError) showBacklog(s.kinds);
  showState();
}

function setWritable(may) {
  if (writable === may && $("main").dataset.writable) return;
  writable = may;
  $("main").dataset.writable = may;
  setText($("where"), location.host + (may ? "" : " · read-only"));
  for (const poll of Poll.all) if (poll !== summaries && !poll.began) poll.start();
}

// empty shows what a section says that has no rows.
function empty(section, is) {
  part($(section), "empty").hidden = !is;
}

// changes returns a button of a row, which says there what came of it.
function changes(row, name, what, done, poll) {
  return act(make("button", { class: name }), {
    ...what,
    outcome: (results, wrong) => {
      const failed = failure(results, wrong);
      setText(part(row, "outcome"), failed || done);
      part(row, "outcome").classList.toggle("warning", !!failed);
      poll.start();
    },
  });
}

const when = (term, name = "") => make("span", { class: "when " + name }, make("i", {}, term), make("b", {}), make("time", {}));

function setWhen(cell, text, relative = ago) {
  setText(cell.children[1], text ? relative(text) : "–");
  cell.children[2].hidden = !text;
  if (text) setTime(cell.children[2], text);
}

function showBacklog(kinds) {
  empty("backlog-section", !kinds.length);
  const most = Math.max(1, ...kinds.map((k) => k.jobs));
  const create = ({ kind }) => {
    const name = make("button", { type: "button", class: "name", title: "show the jobs of this kind that wait" });
    name.addEventListener("click", () => showKind(kind, "waiting"));
    const row = make("li", {}, name, make("span", { class: "number" }), when("oldest due for"),
      svg("svg", { class: "share", "aria-hidden": "true" }, svg("rect", { class: "bar", height: "100%" })), make("p", { class: "state" }),
      make("span", { class: "actions" }), make("p", { class: "outcome" }));
    part(row, "actions").append(changes(row, "pause", { word: "Pause this kind", sure: "Sure?", send: () => ["pause", { kind }] }, "", pausesPoll));
    return row;
  };
  rows($("backlog"), kinds, (k) => k.kind, create, (row, k) => {
    setText(part(row, "name"), k.kind);
    setText(part(row, "number"), (k.jobs >= 10000 ? "about " : "") + jobs(k.jobs));
    setWhen(part(row, "when"), k.due, () => duration(k.age));
    part(row, "bar").setAttribute("width", Math.max(0.5, (100 * k.jobs) / most) + "%");
    const paused = pauses.some((p) => !p.lane && (!p.kind || p.kind === k.kind));
    setText(part(row, "state"), [!k.handled && "No worker that lives runs this kind.", paused && "Paused."].filter(Boolean).join(" "));
    part(row, "state").classList.toggle("of-choice", k.handled);
    part(row, "actions").hidden = !writable || paused;
  });
  offer(kinds.map((k) => k.kind));
}

function showWorkers(workers) {
  empty("workers-section", !workers.length);
  const alive = workers.filter((w) => w.alive).length;
  setAside("workers-count", `${alive} alive` + (alive < workers.length ? `, ${workers.length - alive} dead` : ""));
  const create = () => make("li", {}, make("span", { class: "name" }), make("span", { class: "life" }), make("span", { class: "number" }),
    make("span", { class: "runs" }), make("span", { class: "times" }, when("longest held, since", "since"), when("began", "began"), when("lease ended", "lease")));
  rows($("workers"), workers, (w) => w.name, create, (row, w) => {
    setText(part(row, "name"), w.host ? [w.label, w.host, `process ${w.process}`].filter(Boolean).join(", ") : w.name);
    part(row, "name").title = w.name;
    const kinds = w.kinds || [], some = kinds.slice(0, 5), more = w.allKinds - some.length;
    setText(part(row, "runs"), w.allKinds ? "runs " + [...some, more && `${more} ${some.length ? "more" : "kinds"}`].filter(Boolean).join(", ") : "");
    part(row, "runs").title = kinds.join(", ");
    row.classList.toggle("dead", !w.alive);
    setText(part(row, "life"), w.alive ? "alive" : "dead");
    setText(part(row, "number"), "holds " + jobs(w.jobs));
    for (const [name, text] of [["since", w.since], ["began", w.began], ["lease", w.alive ? "" : w.until]]) {
      part(row, name).hidden = !text;
      setWhen(part(row, name), text);
    }
  });
}

function showSchedules(schedules) {
  empty("schedules-section", !schedules.length);
  setAside("schedules-count", schedules.length ? count(schedules.length) : "");
  const create = ({ name }) => {
    const row = make("li", {}, make("span", { class: "name" }, make("b", {}), make("span", { class: "of" })), make("code", { class: "spec" }), when("last", "last"), when("next", "next"), make("span", { class: "actions" }), make("p", { class: "outcome" }));
    const change = (word, what, done) => changes(row, what, { word, send: () => [what, { names: [name] }] }, done, schedulesPoll);
    part(row, "actions").append(change("Run now", "schedule-run-now", "An occurrence runs now."), change("Pause", "schedule-pause", ""), change("Resume", "schedule-resume", ""));
    return row;
  };
  rows($("schedules"), schedules, (s) => s.name, create, (row, s) => {
    setText(part(row, "name").firstChild, s.name);
    setText(part(row, "spec"), s.spec || "ends: its times were code");
    setText(part(row, "of"), "kind " + s.kind);
    setWhen(part(row, "last"), s.last);
    setWhen(part(row, "next"), s.paused ? "" : s.next);
    if (s.paused) setText(part(row, "next").children[1], "paused");
    row.classList.toggle("paused", !!s.paused);
    part(row, "actions").hidden = !writable;
    part(row, "schedule-run-now").hidden = part(row, "schedule-pause").hidden = !!s.paused;
    part(row, "schedule-resume").hidden = !s.paused;
  });
  offer(schedules.map((s) => s.kind));
}

// ---- Limits and pauses ----

let pauses = []; // of kinds, lanes, and of the whole queue: {}

const nameOf = ({ kind, lane }) => [lane && `lane “${lane}”`, kind && `kind “${kind}”`].filter(Boolean).join(" of ") || "the whole queue";

const pausable = ({ kind, lane }) => (kind || lane ? { kind, lane } : { all: true });

function showPauses(all) {
  pauses = all;
  const create = (p) => {
    const row = make("li", {}, make("span", { class: "name" }, nameOf(p)), make("span", { class: "what" }, "paused"), when("goes on", "next"), make("span", { class: "actions" }), make("p", { class: "outcome" }));
    part(row, "actions").append(changes(row, "resume", { word: "Resume", send: () => ["resume", pausable(p)] }, "", pausesPoll));
    return row;
  };
  rows($("pauses"), pauses, (p) => JSON.stringify([p.kind, p.lane]), create, (row, p) => {
    part(row, "next").hidden = !p.until;
    setWhen(part(row, "next"), p.until);
    part(row, "actions").hidden = !writable;
  });
  showFlow();
  showState();
}

let limits = [];

function showLimits(all) {
  limits = all;
  const create = ({ name }) => {
    const row = make("li", {}, make("span", { class: "name" }, make("b", {}, name), make("span", { class: "of" })), make("span", { class: "what" }), make("span", { class: "use" }), when("next token", "next"),
      make("span", { class: "actions" }), make("p", { class: "outcome" }));
    part(row, "actions").append(changes(row, "limit-delete", { word: "Delete", sure: "Sure?", send: () => ["limit-delete", { names: [name] }] }, "", limitsPoll));
    return row;
  };
  rows($("limits"), limits, (l) => l.name, create, (row, l) => {
    setText(part(row, "of"), (l.kind ? "kind " + l.kind : "all kinds") + (l.perLane ? ", each lane" : ""));
    setText(part(row, "what"), [l.running && `at most ${count(l.running)} at once`, l.rate && `${rate(l.rate)} in bursts of ${count(l.burst)}`].filter(Boolean).join(" · "));
    setText(part(row, "use"), `${count(l.taken)} running` + (l.lanes ? ` in ${count(l.lanes)} ${l.lanes === 1 ? "lane" : "lanes"}` : "") + ` · ${count(l.waiting)} wait here`);
    part(row, "next").hidden = !l.next;
    setWhen(part(row, "next"), l.next);
    part(row, "actions").hidden = !writable;
  });
  showFlow();
}

function showFlow() {
  $("pause-all").hidden = !writable || pauses.some((p) => !p.kind && !p.lane);
  setAside("limits-count", [limits.length && count(limits.length) + (limits.length === 1 ? " limit" : " limits"), pauses.length && count(pauses.length) + " paused"].filter(Boolean).join(", "));
  empty("limits-section", !limits.length && !pauses.length);
}

act($("pause-all"), {
  word: "Pause the whole queue",
  sure: "Sure? Press again",
  send: () => ["pause", { all: true }],
  outcome: (results, wrong) => {
    if (failure(results, wrong)) setAside("limits-count", failure(results, wrong), true);
    else pausesPoll.start();
  },
});

// ---- The rest ----

function setAside(id, text, bad = false) {
  setText($(id), text);
  $(id).classList.toggle("warning", bad);
}

const cannot = (id) => (error) => setAside(id, "cannot be read: " + reason(error), true);

const offered = new Set();

// offer adds kinds to those that the filter suggests.
function offer(kinds) {
  for (const kind of kinds) {
    if (offered.has(kind) || offered.size >= 200) continue;
    offered.add(kind);
    $("kinds").append(make("option", { value: kind }));
  }
}

const summaries = new Poll(() => "summary", 2000, showSummary, (error) => {
  trouble = reason(error);
  showState();
});
const workersPoll = new Poll(() => "workers", 5000, showWorkers, cannot("workers-count"));
const schedulesPoll = new Poll(() => "schedules", 5000, showSchedules, cannot("schedules-count"));
const pausesPoll = new Poll(() => "pauses", 5000, showPauses, cannot("limits-count"));
const limitsPoll = new Poll(() => "limits", 5000, showLimits, cannot("limits-count"));
const jobsPoll = new Poll(jobsWanted, 5000, showJobs, (error) => sayJobs("", `The jobs cannot be read: ${reason(error)}.`));

resume();
