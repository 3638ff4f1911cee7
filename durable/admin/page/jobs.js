"use strict";
// The list of jobs: of one state, and of one kind or of all; what is known of one; and the
// buttons that change one.

const step = 50; // jobs that the list begins with
const most = 1000; // that the handler lists at once

const wanted = { state: "dead", kind: "", n: step };
let listed = { ...wanted }; // what the list shows

const jobsWanted = () => {
  asked = { ...wanted };
  return `list?state=${wanted.state}&kind=${encodeURIComponent(wanted.kind)}&n=${wanted.n}`;
};
let asked = listed; // what is on its way

function want(changes) {
  Object.assign(wanted, changes);
  jobsPoll.start();
}

$("filter").addEventListener("submit", (e) => e.preventDefault());
$("states").addEventListener("change", (e) => want({ state: e.target.value, n: step }));
let typing = 0;
$("kind").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => want({ kind: $("kind").value, n: step }), 250);
});
$("more").addEventListener("click", () => want({ n: Math.min(most, 2 * wanted.n) }));

// showKind goes to the jobs of a kind.
function showKind(kind, state) {
  $("kind").value = kind;
  $("states").querySelector(`[value=${state}]`).checked = true;
  want({ kind, state, n: step });
  $("jobs-section").scrollIntoView({ block: "start" });
}

const none = { dead: "No job is dead", done: "No job that is done is retained", canceled: "No job that was canceled is retained", running: "No job runs", waiting: "No job waits" };

// sayJobs says that there is nothing to list, or what went wrong.
function sayJobs(text, wrong = "") {
  $("no-jobs").hidden = !(text || wrong);
  setText($("no-jobs"), wrong || text);
  $("no-jobs").classList.toggle("warning", !!wrong);
}

// showJobs shows a listing that was asked for at a time.
function showJobs(listing, began) {
  listed = asked;
  const { state, kind, n } = listed;
  rows($("jobs"), listing.jobs, (j) => j.state + j.ref, createJob, (row, j) => fillJob(row, j, began));
  sayJobs(listing.jobs.length ? "" : none[state] + (kind ? ` of kind “${kind}”.` : "."));
  $("more").hidden = !listing.next || n >= most;
  $("redrive-all").hidden = !(writable && state === "dead" && listing.jobs.length);
  if (!$("redrive-all").classList.contains("armed")) setText($("redrive-all"), redriveWord());
  offer(listing.jobs.map((j) => j.kind));
}

const redriveWord = () => (listed.kind ? `Redrive all of kind “${listed.kind}”` : "Redrive all that are dead");

act($("redrive-all"), {
  word: redriveWord,
  sure: "Sure? Press again",
  send: () => ["redrive", { all: true, kind: listed.kind }],
  outcome: (results, wrong) => {
    const failed = wrong ?? results[0].error;
    say((results ? `${jobs(results[0].jobs ?? 0)} redriven.` : "") + (failed ? ` Not all: ${failed}` : ""), !!failed);
    jobsPoll.start();
  },
});

function say(text, bad) {
  setText($("said"), text.trim());
  $("said").classList.toggle("warning", bad);
}

// The commands that a job of each state has a button for.
const commands = {
  dead: [{ what: "redrive", word: "Redrive", done: "redriven" }, { what: "delete", word: "Delete", sure: "Sure?", done: "deleted" }],
  waiting: [{ what: "run-now", word: "Run now", done: "due now" }, { what: "cancel", word: "Cancel", sure: "Sure?", done: "canceled" }],
  done: [{ what: "delete", word: "Delete", sure: "Sure?", done: "deleted" }],
  canceled: [{ what: "delete", word: "Delete", sure: "Sure?", done: "deleted" }],
  running: [{ what: "stop", word: "Stop", sure: "Sure?", done: "asked to end" }],
};

function createJob(job) {
  const name = make("button", { type: "button", class: "name", "aria-expanded": "false" });
  const row = make("li", { class: "job" }, name, make("code", { class: "ref" }), make("p", { class: "error" }), when("due"), make("span", { class: "attempts" }),
    make("span", { class: "actions" }), make("p", { class: "outcome" }), make("div", { class: "details" }));
  part(row, "details").hidden = true;
  name.addEventListener("click", () => toggle(row, job.ref));
  for (const c of commands[job.state]) {
    part(row, "actions").append(act(make("button", { class: c.what }), {
      ...c,
      send: () => [c.what, { refs: [job.ref] }],
      outcome: (results, wrong) => {
        const failed = failure(results, wrong);
        row.acted = performance.now();
        row.classList.toggle("gone", !failed);
        setText(part(row, "outcome"), failed || c.done);
        part(row, "outcome").classList.toggle("warning", !!failed);
        say(failed ? `Not ${c.done}: ${failed}` : `${job.ref}: ${c.done}.`, !!failed);
      },
    }));
  }
  return row;
}

const settled = 3000; // ms for which a listing may not know yet what a button has done

function fillJob(row, j, began) {
  if (row.acted && began > row.acted + settled) {
    row.acted = 0; // it is here again, or still
    row.classList.remove("gone");
    setText(part(row, "outcome"), "");
  }
  setText(part(row, "name"), j.kind);
  setRef(part(row, "ref"), j.ref);
  setText(part(row, "attempts"), `attempt ${count(j.attempt)} of ${count(j.maxAttempts)}`);
  setWhen(part(row, "when"), j.due);
  setText(part(row, "error"), j.error ?? "");
  part(row, "actions").hidden = !writable;
}

async function toggle(row, ref) {
  const details = part(row, "details");
  details.hidden = !details.hidden;
  part(row, "name").setAttribute("aria-expanded", String(!details.hidden));
  row.classList.toggle("open", !details.hidden);
  if (details.hidden) return;
  details.replaceChildren(make("p", { class: "empty" }, "asking"));
  try {
    const query = "?ref=" + encodeURIComponent(ref);
    const [job, why] = await Promise.all([ask("show" + query), ask("why" + query)]);
    details.replaceChildren(make("p", { class: "why" }, why.text), ...describe(job));
  } catch (error) {
    details.replaceChildren(make("p", { class: "warning" }, `It cannot be shown: ${reason(error)}.`));
  }
}

// describe returns what is known of a job.
function describe(j) {
  const facts = make("dl", {});
  const time = (text) => (text ? `${moment(text)} (${ago(text)})` : "");
  list(facts, [
    ["state", j.state],
    ["worker", j.worker],
    ["due", time(j.due)],
    ["first due", time(j.first)],
    ["began", time(j.began)],
    ["ended", time(j.ended)],
    ["key", j.key],
    ["lane", j.lane],
    ["priority", j.priority],
    ["timeout", j.timeout ? duration(j.timeout) : ""],
    ["expires", time(j.expires)],
    ...Object.entries(j.meta ?? {}).map(([name, value]) => ["meta " + name, value]),
  ].filter(([, text]) => text));
  const errors = make("ol", { class: "errors" }, ...(j.errors ?? []).toReversed().map((e) =>
    make("li", {}, make("span", {}, [e.attempt ? `attempt ${count(e.attempt)}` : "", e.at ? time(e.at) : "at an unknown time"].filter(Boolean).join(" · ")), make("pre", {}, e.error))));
  const payload = make("pre", { class: "payload" }, j.bytes ? j.bytes : j.payload || "empty");
  const parts = [facts];
  if (errors.children.length) parts.push(make("h3", {}, "Last errors, the newest first"), errors);
  parts.push(make("h3", {}, `Payload, ${count(j.size)} bytes${j.bytes ? ", in base64" : ""}`), payload);
  return parts;
}
