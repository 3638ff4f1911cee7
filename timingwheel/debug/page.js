"use strict";
// The page behind index.html: it reads the stream of events that event.go describes, and
// shows them. It asks for nothing but the stream, and only while somebody looks at it. To
// show one more value, let event.go send it, unless it is in stats, and write it in one
// of the functions that receive calls.

// ---- The stream ----

let wanted = new URLSearchParams(location.search).get("wheel") ?? ""; // empty: the first
let stream = null; // open while the page is looked at and not paused
let paused = false;
let lastEvent = 0; // when the last event came, or the stream was opened
let beat = 250; // ms between the last two events

function state(name, text) {
  if ($("connection").dataset.state === name) return;
  $("connection").dataset.state = name;
  $("connection").textContent = text;
}

function open() {
  close();
  if (paused || document.visibilityState === "hidden") return;
  lastEvent = performance.now();
  stream = new EventSource("?format=events&wheel=" + encodeURIComponent(wanted));
  stream.onmessage = (message) => {
    const now = performance.now();
    beat = Math.max(now - lastEvent, 200);
    lastEvent = now;
    state("live", "live");
    receive(JSON.parse(message.data), now);
  };
  stream.onerror = () => state("lost", "connection lost, trying again");
}

function close() {
  stream?.close();
  stream = null;
}

// The browser does not open a stream again that a server has refused, and does not close
// one that is silent.
setInterval(() => {
  if (!stream) return;
  const silent = performance.now() - lastEvent > Math.max(10000, 4 * beat);
  if (silent) state("lost", "nothing heard, trying again");
  if (silent || stream.readyState === EventSource.CLOSED) open();
}, 2000);

document.addEventListener("visibilitychange", open);
addEventListener("pagehide", close);
addEventListener("pageshow", (e) => e.persisted && open());

$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").textContent = paused ? "Resume" : "Pause";
  state("paused", paused ? "paused" : "connecting");
  open();
});

function select(name) {
  wanted = name;
  forget();
  open();
}

addEventListener("popstate", () => select(new URLSearchParams(location.search).get("wheel") ?? ""));

// ---- What an event changes ----

let past = []; // the last samples of the wheel that is shown
let sampled = 0; // when the last of them came
let described = -Infinity; // when the descriptions for screen readers were last written

function receive(event, now) {
  showWheels(event);
  for (const w of event.wheels) remember(w, now);
  for (const name of pending.keys()) {
    if (!event.wheels.some((w) => w.name === name)) pending.delete(name);
  }
  const note = notice(event);
  $("note").hidden = !note;
  setText($("note"), note);
  $("wheel").hidden = !event.shown;
  if (event.shown) showWheel(event.shown, now);
  else forget();
  showPools(event.pools);
  showPurgatories(event.purgatories);
  tip.write();
}

// forget forgets the wheel that was shown.
function forget() {
  dial.clear();
  past = [];
}

const heldUpLong = 1e9; // ns; the log says so from then on too

// notice returns what the page says before everything else, or nothing.
function notice(event) {
  if (!event.wheels.length) return "No wheel has been added yet.";
  if (!event.shown && (event.wheels.length || wanted)) return `There is no wheel named “${wanted}” here, or not any more.`;
  if (!event.shown) return "";
  const { HeldUp, HeldUpBy } = event.shown.stats;
  if (HeldUp >= heldUpLong) return `The executor has held the driver up for ${duration(HeldUp)}: ${HeldUpBy}. No function fires until it returns.`;
  return "";
}

function showWheel(w, now) {
  const old = past.at(-1);
  if (old && w.name === old.name && w.taken === old.taken) return; // the same sample again
  if (old) interval = Math.min(Math.max(now - sampled, 200), 10000);
  sampled = now;
  const grown = old && w.name === old.name && w.stats.Now >= old.stats.Now && w.stats.Scheduled >= old.stats.Scheduled;
  if (!grown) past = []; // another wheel, or a new one of that name
  past.push(w);
  if (past.length > 6) past.shift();

  const describe = now - described > 5000 || !old || old.name !== w.name;
  if (describe) described = now;
  showFacts(w);
  showRates();
  showNow(w);
  showAccounts(w);
  showNext(w);
  showLevels(w);
  dial.show(w, past.at(-2), describe);
  drawPending(pending.get(w.name), now, describe);
  drawLateness(w, describe);
}

function showWheels(event) {
  const create = () => {
    const link = make("a", {}, make("b", {}), make("span", {}));
    link.addEventListener("click", (e) => {
      if (e.ctrlKey || e.metaKey || e.shiftKey || e.altKey) return;
      e.preventDefault();
      history.pushState(null, "", link.href);
      select(link.dataset.name);
    });
    return make("li", {}, link);
  };
  rows($("wheels"), event.wheels, create, (item, w) => {
    const link = item.firstChild;
    if (link.dataset.name !== w.name) {
      link.dataset.name = w.name;
      link.href = "?wheel=" + encodeURIComponent(w.name);
      link.firstChild.textContent = w.name;
    }
    setText(link.lastChild, w.heldUp >= heldUpLong ? "held up" : w.stopped ? "stopped" : compact(w.pending));
    if (w.name === event.shown?.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  });
}

function showFacts(w) {
  const s = w.stats;
  setText($("name"), w.name);
  document.title = w.name + " – timing wheels";
  $("profiled").hidden = !w.stats.ProfileRate;
  for (const form of ["text", "json", "profile"]) $("as-" + form).href = `?format=${form}&wheel=${encodeURIComponent(w.name)}`;
  const facts = ["made " + duration(s.Now) + " ago", "tick " + duration(s.Tick), s.Shards + (s.Shards === 1 ? " shard" : " shards")];
  if (s.Closed) facts.unshift("stopped");
  if (s.Precise) facts.push("precise wake-ups");
  setText($("facts"), facts.join(" · "));
}

// perSecond returns how fast a count has grown in a time, as text.
const perSecond = (grown, ns) => (ns > 0 ? rate((grown / ns) * 1e9) : "–");

function showRates() {
  const [first, last] = [past[0].stats, past.at(-1).stats];
  const of = (key) => perSecond(last[key] - first[key], last.Now - first.Now);
  list($("rates"), [
    ["scheduled /s", of("Scheduled")],
    ["expired /s", of("Expired")],
    ["stopped /s", of("Stopped")],
    ["reset /s", of("Reset")],
    ["cascaded /s", of("Cascaded")],
    ["wake-ups /s", of("Wakeups")],
  ]);
}

function showNow(w) {
  const s = w.stats;
  list($("now"), [
    ["pending", count(s.Pending)],
    ["of these due", count(w.due)],
    ["cascading", count(w.cascading)],
    ["waiting for room", count(s.Waiting)],
    ["in the executor", count(s.Running)],
    ["memory", compact(s.Arena.Capacity * 32) + "B"],
    ["memory unused", compact(s.Arena.Free * 32) + "B"],
  ]);
}

function showAccounts(w) {
  const s = w.stats;
  list($("accounts"), [
    ["scheduled", count(s.Scheduled)],
    ["expired", count(s.Expired)],
    ["stopped", count(s.Stopped)],
    ["handed back", count(s.HandedBack)],
    ["reset", count(s.Reset)],
    ["cascaded", count(s.Cascaded)],
    ["rejected", count(s.Rejected)],
    ["discarded", count(s.Discarded)],
    ["refused by the executor", count(s.Refused)],
    ["run by the driver", count(s.CallerRuns)],
    ["panicked", count(s.Panicked)],
  ]);
}

function showNext(w) {
  const when = (ns) => (ns > 0 ? "in " + duration(ns) : ns > -100e6 ? "due now" : "overdue by " + duration(-ns));
  const lines = new Map(); // moments that read the same are one line
  for (const m of w.next) lines.set(when(m.in), (lines.get(when(m.in)) ?? 0) + m.n);
  const create = () => make("li", {}, make("b", {}), make("span", {}));
  rows($("next"), [...lines], create, (item, [text, n]) => {
    setText(item.firstChild, text);
    setText(item.lastChild, "× " + count(n));
  });
}

// Each cell has the name of its column. A narrow screen shows the name with the cell.
const columns = [...document.querySelectorAll("#levels-section th")].map((th) => th.textContent);

function showLevels(w) {
  const create = () => make("tr", { role: "row" }, ...columns.map((name, i) =>
    i ? make("td", { role: "cell", "data-column": name }) : make("th", { role: "rowheader", scope: "row", "data-column": name })));
  rows($("levels"), w.rings, create, (row, r) => {
    const cells = [duration(r.tick), duration(r.interval), count(r.slots), duration(r.currentTime), count(r.buckets), count(r.entries), count(r.cascaded)];
    cells.forEach((text, i) => setText(row.children[i], text));
  });
}

// showPools shows how busy the pools are, with a bar where there is a bound.
function showPools(pools) {
  $("pools-section").hidden = !pools.length;
  const bar = () => svg("svg", { class: "share", "aria-hidden": "true" }, svg("rect", { class: "bar", height: "100%" }));
  const item = (term, ...more) => make("div", {}, make("dt", {}, term), make("dd", {}, make("span", {}), ...more));
  const create = () => make("li", {}, make("h3", {}, make("b", {}), make("span", {})),
    make("dl", {}, item("busy workers", bar()), item("in the queue", bar()), item("waiting on wheels")));
  rows($("pools"), pools, create, (row, { name, stats }) => {
    setText(row.querySelector("h3 b"), name);
    setText(row.querySelector("h3 span"), stats.Closed ? "closed" : "");
    const [workers, queue, waiting] = row.querySelectorAll("dd span");
    setText(workers, `${count(stats.Running)} of ${count(stats.Workers)}`);
    setText(queue, `${count(stats.Queued)} of ${count(stats.Queue)}`);
    setText(waiting, count(stats.Waiting));
    const shares = [stats.Running / stats.Workers, stats.Queue && stats.Queued / stats.Queue];
    row.querySelectorAll(".bar").forEach((b, i) => b.setAttribute("width", 100 * shares[i] + "%"));
  });
}

// rates returns a function which keeps the last figures of each of all, by its name, and
// returns the rates of counters of one. Where the counter rising falls, it is a new one of
// that name.
function rates(rising) {
  const earlier = new Map();
  return (all) => {
    for (const name of earlier.keys()) {
      if (!all.some((p) => p.name === name)) earlier.delete(name);
    }
    return (p) => {
      let figures = earlier.get(p.name);
      const grown = figures && p.age >= figures.at(-1).age && p.stats[rising] >= figures.at(-1).stats[rising];
      if (!grown) earlier.set(p.name, (figures = [])); // a new one, or another of that name
      figures.push(p);
      if (figures.length > 6) figures.shift();
      return (key) => perSecond(p.stats[key] - figures[0].stats[key], p.age - figures[0].age);
    };
  };
}

const purgatoryRates = rates("Parked");

// showPurgatories shows what is parked, and under which keys most is.
function showPurgatories(purgatories) {
  $("purgatories-section").hidden = !purgatories.length;
  const ratesOf = purgatoryRates(purgatories);
  const create = () => make("li", {}, make("h3", {}), make("dl", {}), make("ol", { class: "keys", "aria-label": "Keys with most" }));
  const createKey = () => make("li", {}, make("b", {}), make("span", {}));
  rows($("purgatories"), purgatories, create, (row, p) => {
    const of = ratesOf(p);
    setText(row.children[0], p.name);
    list(row.children[1], [
      ["parked", count(p.stats.Pending)],
      ...(p.keys ? [["keys", count(p.stats.Keys)]] : []), // a threshold has none
      ["parked /s", of("Parked")],
      ["satisfied /s", of("Satisfied")],
      ["expired /s", of("Expired")],
      ["canceled /s", of("Canceled")],
      ...(p.keys ? [["questions /s", of("Checks")]] : []),
    ]);
    rows(row.children[2], p.keys ?? [], createKey, (item, k) => {
      setText(item.firstChild, k.Key);
      setText(item.lastChild, "× " + count(k.Pending));
    });
  });
}

open();
