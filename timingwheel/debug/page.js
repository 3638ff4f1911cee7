"use strict";
// The page behind index.html: it reads the stream of events that event.go describes,
// and draws. Text from the stream goes into the page by textContent and setAttribute
// only, so that no name can become markup. It asks for nothing but the stream, and
// that while it is looked at only.

const $ = (id) => document.getElementById(id);
const still = matchMedia("(prefers-reduced-motion: reduce)");

// ---- Text ----

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const count = (n) => grouped.format(n);
const rate = (n) => (n < 10 ? tenths : grouped).format(n);
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 }).format;

// duration writes nanoseconds with about three digits.
function duration(ns) {
  const units = [["y", 31557600e9], ["d", 86400e9], ["h", 3600e9], ["min", 60e9], ["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];
  const [unit, size] = units.find(([, size]) => Math.abs(ns) >= size) ?? ["s", 1e9];
  const n = ns / size;
  return n.toFixed(Math.abs(n) < 10 && !Number.isInteger(n) ? 1 : 0) + "\u00a0" + unit;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// list makes node, a dl, say what pairs have, and leaves in place what is there already.
function list(node, pairs) {
  pairs.forEach(([term, text], i) => {
    if (!node.children[i]) {
      const group = document.createElement("div");
      group.append(document.createElement("dt"), document.createElement("dd"));
      node.append(group);
    }
    setText(node.children[i].children[0], term);
    setText(node.children[i].children[1], text);
  });
}

// rows makes node have a child for each of items, and lets fill write each.
function rows(node, items, make, fill) {
  while (node.children.length > items.length) node.lastChild.remove();
  while (node.children.length < items.length) node.append(make());
  items.forEach((item, i) => fill(node.children[i], item));
}

function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// ---- The stream ----

let wanted = new URLSearchParams(location.search).get("wheel") ?? ""; // empty: the first
let stream = null; // open while the page is looked at and not paused
let paused = false;
let lastEvent = 0; // when the last event came, or the stream was opened
let gap = 250; // ms between two events

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
    gap = Math.min(Math.max(now - lastEvent, 200), 10000);
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

// A stream that a server has refused is not opened again by the browser, and one that
// is silent is not closed by it.
setInterval(() => {
  if (!stream) return;
  const silent = performance.now() - lastEvent > Math.max(10000, 4 * gap);
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
  dial.clear();
  past = [];
  open();
}

addEventListener("popstate", () => select(new URLSearchParams(location.search).get("wheel") ?? ""));

// ---- What an event changes ----

let past = []; // of the wheel that is shown: some seconds of stats
const pending = new Map(); // of each wheel, by name: minutes of {t, n}
let described = -Infinity; // when the descriptions for screen readers were last written

function receive(event, now) {
  showWheels(event);
  for (const w of event.wheels) remember(w, now);
  for (const name of pending.keys()) {
    if (!event.wheels.some((w) => w.name === name)) pending.delete(name);
  }
  const w = event.shown;
  $("note").hidden = Boolean(w);
  if (!w) {
    setText($("note"), event.wheels.length ? `There is no wheel named “${wanted}” here, or not any more.` : "No wheel has been added yet.");
    dial.clear();
    dial.node.setAttribute("aria-label", "nothing to draw");
    for (const id of ["name", "facts"]) setText($(id), "");
    return;
  }
  const old = past.at(-1);
  const grown = old && w.name === old.name && w.stats.Now >= old.stats.Now && w.stats.Scheduled >= old.stats.Scheduled;
  if (!grown) past = []; // another wheel, or a new one of that name
  past.push(w);
  if (past.length > 6) past.shift();

  const describe = now - described > 5000 || !old || old.name !== w.name;
  if (describe) described = now;
  showFacts(w);
  showRates(w);
  showAccounts(w);
  showNext(w);
  showLevels(w);
  dial.show(w, past.at(-2), describe);
  drawPending(pending.get(w.name), now, describe);
  drawLateness(w, describe);
}

function showWheels(event) {
  const make = () => {
    const link = document.createElement("a");
    link.append(document.createElement("b"), document.createElement("span"));
    link.addEventListener("click", (e) => {
      if (e.ctrlKey || e.metaKey || e.shiftKey || e.altKey) return;
      e.preventDefault();
      history.pushState(null, "", link.href);
      select(link.dataset.name);
    });
    const item = document.createElement("li");
    item.append(link);
    return item;
  };
  rows($("wheels"), event.wheels, make, (item, w) => {
    const link = item.firstChild;
    if (link.dataset.name !== w.name) {
      link.dataset.name = w.name;
      link.href = "?wheel=" + encodeURIComponent(w.name);
      link.firstChild.textContent = w.name;
    }
    setText(link.lastChild, w.stopped ? "stopped" : compact(w.pending));
    if (w.name === event.shown?.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  });
}

function showFacts(w) {
  const s = w.stats;
  setText($("name"), w.name);
  document.title = w.name + " – timing wheels";
  for (const form of ["text", "json"]) $("as-" + form).href = `?format=${form}&wheel=${encodeURIComponent(w.name)}`;
  const facts = [s.Stopped ? "stopped" : "running", "made " + duration(s.Now) + " ago", "tick " + duration(s.Tick), s.Shards + (s.Shards === 1 ? " shard" : " shards")];
  if (s.Precise) facts.push("precise wake-ups");
  setText($("facts"), facts.join(" · "));
}

// perSecond returns how fast one of the counts has grown in the last two seconds.
function perSecond(key) {
  const [first, last] = [past[0].stats, past.at(-1).stats];
  return last.Now > first.Now ? ((last[key] - first[key]) / (last.Now - first.Now)) * 1e9 : NaN;
}

function showRates() {
  const per = (key) => (past.length < 2 ? "–" : rate(perSecond(key)));
  list($("rates"), [
    ["scheduled /s", per("Scheduled")],
    ["fired /s", per("Fired")],
    ["canceled /s", per("Canceled")],
    ["reset /s", per("Reset")],
    ["cascaded /s", per("Cascaded")],
    ["wake-ups /s", per("Wakeups")],
  ]);
}

function showAccounts(w) {
  const s = w.stats;
  list($("accounts"), [
    ["scheduled", count(s.Scheduled)],
    ["fired", count(s.Fired)],
    ["canceled", count(s.Canceled)],
    ["handed back", count(s.HandedBack)],
    ["pending", count(s.Pending)],
    ["of it due now", count(w.due)],
    ["of it cascading", count(w.cascading)],
    ["reset", count(s.Reset)],
    ["cascaded", count(s.Cascaded)],
    ["rejected", count(s.Rejected)],
    ["discarded", count(s.Discarded)],
    ["run by the driver", count(s.CallerRuns)],
    ["panicked", count(s.Panicked)],
    ["running", count(s.Running)],
    ["arena", compact(s.Arena.Capacity * 32) + "B"],
    ["of it free", compact(s.Arena.Free * 32) + "B"],
  ]);
}

function showNext(w) {
  const make = () => {
    const item = document.createElement("li");
    item.append(document.createElement("b"), document.createElement("span"));
    return item;
  };
  rows($("next"), w.next, make, (item, m) => {
    setText(item.firstChild, m.in > 0 ? "in " + duration(m.in) : "due");
    setText(item.lastChild, "× " + count(m.n));
  });
}

function showLevels(w) {
  const make = () => {
    const row = document.createElement("tr");
    for (let i = 0; i < 7; i++) row.append(document.createElement(i ? "td" : "th"));
    row.firstChild.scope = "row";
    return row;
  };
  rows($("levels"), w.rings, make, (row, r) => {
    const cells = [duration(r.tick), duration(r.interval), count(r.slots), duration(r.currentTime), count(r.buckets), count(r.entries), count(r.cascaded)];
    cells.forEach((text, i) => setText(row.children[i], text));
  });
}

// ---- The dial ----
//
// It is read like a clock: the finest wheel is the outermost ring, as the second hand
// is the longest. Tasks come in further inside, cascade outwards from ring to ring as
// their time approaches, and leave over the rim when they fire. Each ring begins right
// of the gap at twelve o'clock, where its name is.
//
// Events are some tenths of a second apart, in which the finest hand may go round.
// So a ring shows what has happened between the last two: its hand moves from where
// it was to where it is, empties the slots that it passes, and has them filled again
// when it comes round.

const rim = 300; // outer radius of the finest ring
const hub = 104; // inner radius of the coarsest
const shades = 8;

const dial = {
  node: $("dial"),
  shape: "", // what the rings were built for
  rings: [], // the finest first
  top: 10, // the most that a slot is drawn with, a power of ten
  sparks: 0,

  clear() {
    this.shape = "";
    this.rings = [];
    this.node.replaceChildren();
  },

  show(w, old, describe) {
    const shape = JSON.stringify([w.name, w.rings.map((r) => [r.tick, r.slots])]);
    const first = shape !== this.shape;
    if (first) this.build(w, shape);
    this.rescale(w);
    this.node.classList.toggle("stopped", w.stats.Stopped);
    const total = compact(w.stats.Pending);
    setText(this.total, w.stats.Pending < 1e5 ? count(w.stats.Pending) : total);
    this.total.setAttribute("font-size", this.total.textContent.length > 6 ? 40 : 50);
    setText(this.totalName, w.stats.Stopped ? "stopped" : "pending");
    const start = performance.now();
    w.rings.forEach((r, i) => this.rings[i].next(r, start, first || still.matches));
    if (old && !first && !still.matches) this.scatter(w, old);
    this.animate();
    if (describe) this.node.setAttribute("aria-label", sentence(w));
  },

  build(w, shape) {
    this.clear();
    this.shape = shape;
    this.sparks = 0;
    const pitch = Math.min(66, (rim - hub) / w.rings.length);
    this.rings = w.rings.map((r, i) => new Ring(r, rim - i * pitch, pitch * 0.8));
    this.total = svg("text", { class: "total", y: 10 });
    this.totalName = svg("text", { class: "total-name", y: 34 });
    this.layer = svg("g", {});
    this.node.append(...this.rings.map((r) => r.node), ...this.rings.map((r) => r.hand), this.layer, this.total, this.totalName);
  },

  // rescale follows the fullest slot, by powers of ten, and downwards with some delay.
  rescale(w) {
    const most = Math.max(1, ...w.rings.flatMap((r) => r.segments));
    let top = this.top;
    if (most > top || most < top / 30) top = 10 ** Math.max(1, Math.ceil(Math.log10(most)));
    if (top === this.top && $("scale").firstChild) return;
    this.top = top;
    for (const r of this.rings) r.values.forEach((n, i) => r.set(i, n, true));
    const boxes = Array.from({ length: shades }, (_, i) => svg("rect", { class: "s" + (i + 1), x: i * 15, y: 2, width: 14, height: 8 }));
    $("scale").replaceChildren(svg("svg", { viewBox: "0 0 120 22" }, ...boxes, ...[[2, 1], [60, Math.sqrt(top)], [112, top]].map(([x, n]) => {
      const text = svg("text", { x, y: 21 });
      text.textContent = compact(n);
      return text;
    })));
  },

  // animate draws frames until every ring has arrived.
  animate() {
    if (this.running) return;
    this.running = true;
    const frame = (now) => {
      this.running = this.rings.filter((r) => r.step(now)).length > 0;
      if (this.running) requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  },

  // scatter sends sparks for what has cascaded or fired between two events: from the
  // hand of a ring to where the finer one has been filled, and from the finest over
  // the rim. Their number grows with the logarithm of the tasks'.
  scatter(w, old) {
    this.rings.forEach((ring, i) => {
      const before = old.rings[i];
      if (!before) return;
      const n = i ? w.rings[i].cascaded - before.cascaded : w.stats.Fired - old.stats.Fired;
      const finer = this.rings[i - 1];
      for (let left = Math.min(24, Math.ceil(2 * Math.log2(1 + Math.max(0, n)))); left > 0; left--) {
        if (finer) this.spark(finer.round(), ring.middle, ring.at(ring.to), finer.middle, finer.somewhere());
        else {
          const when = Math.random();
          const angle = ring.at(ring.from + when * (ring.to - ring.from));
          this.spark(when, ring.outer - 6, angle, rim + 22, angle);
        }
      }
    });
  },

  // spark moves along a spiral from one radius and angle to another.
  spark(when, r0, a0, r1, a1) {
    if (this.sparks > 150) return;
    this.sparks++;
    let turn = a1 - a0;
    if (Math.abs(turn) > Math.PI) turn -= Math.sign(turn) * 2 * Math.PI; // the short way
    const keyframes = [0, 0.2, 0.4, 0.6, 0.8, 1].map((p) => {
      const [x, y] = point(r0 + p * (r1 - r0), a0 + p * p * turn);
      return { transform: `translate(${x}px, ${y}px)`, opacity: p === 0 ? 0 : p === 1 ? 0 : 1 - p * 0.4 };
    });
    const dot = svg("circle", { class: "spark", r: 1.8 });
    this.layer.append(dot);
    const duration = 450 + Math.abs(turn) * 150;
    dot.animate(keyframes, { duration, delay: when * gap + Math.random() * 120, easing: "ease-out", fill: "both" }).onfinish = () => {
      dot.remove();
      this.sparks--;
    };
  },
};

// point returns where an angle is, clockwise from twelve o'clock.
const point = (r, a) => [+(r * Math.sin(a)).toFixed(2), +(-r * Math.cos(a)).toFixed(2)];

// fullest returns how much the fullest segments hold, but for one in fifty, which may
// hold a hundred times as much and would make the others flat.
function fullest(segments) {
  const filled = segments.filter((n) => n > 0).sort((a, b) => a - b);
  return filled[Math.floor(filled.length * 0.98)] ?? 1;
}

// sector returns the outline of a part of a ring.
function sector(inner, outer, a0, a1) {
  const far = a1 - a0 > Math.PI ? 1 : 0;
  return `M${point(outer, a0)}A${outer} ${outer} 0 ${far} 1 ${point(outer, a1)}L${point(inner, a1)}A${inner} ${inner} 0 ${far} 0 ${point(inner, a0)}Z`;
}

// Ring is a level on the dial. Times in it are revolutions since the wheel was made.
class Ring {
  constructor(r, outer, band) {
    this.outer = outer;
    this.inner = outer - band;
    this.middle = outer - band / 2;
    this.revolution = r.tick * r.slots; // r.interval may have been cut off
    this.values = r.segments.map(() => 0); // as drawn
    this.most = fullest(r.segments); // of late
    this.goal = r.segments; // of the last event
    this.from = this.to = this.drawn = 0;
    this.gap = Math.asin(Math.min(0.9, (band > 16 ? 28 : 3) / this.middle)); // half of it

    const ends = [this.at(0), this.at(1 - 1e-9)];
    this.node = svg("g", { class: "ring" }, svg("path", { class: "track", d: sector(this.inner, outer, ...ends) }), svg("path", { class: "base", d: sector(this.inner - 1, this.inner, ...ends) }));
    if (band > 12) {
      for (let i = 0, marks = Math.min(r.slots, 32); i <= marks; i++) {
        const a = this.at(i === marks ? 1 - 1e-9 : i / marks);
        const [x1, y1] = point(outer + 2, a);
        const [x2, y2] = point(outer + (i % 8 ? 5 : 8), a);
        this.node.append(svg("line", { class: "graduation", x1, y1, x2, y2 }));
      }
    }
    this.slots = r.segments.map(() => svg("path", { class: "slot s0" }));
    this.node.append(...this.slots);
    if (band > 16) {
      const name = svg("text", { class: "ring-name", y: -this.middle });
      name.textContent = duration(r.tick);
      this.node.append(name);
    }
    const head = Math.min(5, band / 4);
    this.hand = svg("g", {},
      svg("line", { class: "hand", y1: -this.inner + head / 2, y2: -outer - head }),
      svg("path", { class: "hand-head", d: `M0 ${-outer + head * 0.6}l${-head} ${-head * 2}h${2 * head}z` }));
  }

  // at returns the angle of a time.
  at(time) {
    return this.gap + (time - Math.floor(time)) * (2 * Math.PI - 2 * this.gap);
  }

  // set draws a slot with n entries. Its shade goes with the logarithm of n and is the
  // same on all rings; its height goes with the root, and is relative to the ring's own.
  // So both a slot of three and one of thousands can be made out.
  set(i, n, again) {
    if (this.values[i] === n && !again) return;
    this.values[i] = n;
    const shade = n > 0 ? Math.min(shades, 1 + Math.floor((Math.log(n) / Math.log(dial.top)) * shades)) : 0;
    this.slots[i].setAttribute("class", "slot s" + shade);
    if (n === 0) return this.slots[i].removeAttribute("d");
    const m = this.slots.length;
    const height = (this.outer - this.inner) * Math.min(1, Math.max(0.08, Math.sqrt(n / this.most)));
    const a0 = this.at(i / m);
    const a1 = a0 + (2 * Math.PI - 2 * this.gap) / m;
    const pad = Math.min((a1 - a0) * 0.14, 0.8 / this.middle);
    this.slots[i].setAttribute("d", sector(this.inner, this.inner + height, a0 + pad, a1 - pad));
  }

  setAll(values) {
    values.forEach((n, i) => this.set(i, n));
  }

  // next begins to move toward what an event says.
  next(r, start, atOnce) {
    this.setAll(this.goal); // whatever of the last movement is left
    this.goal = r.segments;
    this.most = Math.max(this.most * 0.75, fullest(r.segments)); // sinks slowly, or the ring would pump
    this.from = this.drawn = this.to;
    this.to = r.currentTime / this.revolution;
    this.start = start;
    this.span = gap;
    const turns = this.to - this.from;
    if (atOnce || turns < 0 || turns > 2) this.from = this.drawn = this.to;
    if (Math.floor(this.from) !== Math.floor(this.to)) return;
    const passing = [this.slot(this.from), this.slot(this.to)];
    this.goal.forEach((n, i) => (i < passing[0] || i >= passing[1]) && this.set(i, n));
  }

  slot(time) {
    return Math.floor((time - Math.floor(time)) * this.slots.length);
  }

  // step draws the moment now, and reports whether there is more to come.
  step(now) {
    const p = Math.min(1, Math.max(0, (now - this.start) / this.span));
    const time = this.from + p * (this.to - this.from);
    const round = Math.floor(time) > Math.floor(this.drawn);
    const end = round ? this.slots.length : this.slot(time);
    for (let i = this.slot(this.drawn); i < end; i++) this.set(i, 0);
    if (round || p === 1) this.setAll(this.goal);
    this.drawn = time;
    this.hand.setAttribute("transform", `rotate(${((this.at(time) * 180) / Math.PI).toFixed(2)})`);
    return p < 1;
  }

  // round returns when the hand comes round on its way, from 0 to 1, or any time.
  round() {
    const turns = this.to - this.from;
    const first = Math.ceil(this.from) - this.from;
    return turns > 0 && first < turns ? first / turns : Math.random();
  }

  // somewhere returns the angle of one of the slots that are to be filled.
  somewhere() {
    const filled = this.goal.flatMap((n, i) => (n > 0 ? [i] : []));
    if (!filled.length) return this.at(Math.random());
    return this.at((filled[Math.floor(Math.random() * filled.length)] + 0.5) / this.goal.length);
  }
}

// sentence says what the dial shows.
function sentence(w) {
  const rings = w.rings.map((r) =>
    `slots of ${duration(r.tick)}: ${count(r.entries)} entries in ${count(r.buckets)} buckets, hand at slot ${r.hand + 1} of ${r.slots}`);
  return `${w.name}: ${count(w.stats.Pending)} pending${w.stats.Stopped ? ", stopped" : ""}, on ${rings.length} rings, from the finest. ${rings.join("; ")}.`;
}

// ---- The charts ----

const minutes = 5;

function remember(w, now) {
  if (!pending.has(w.name)) pending.set(w.name, []);
  const seen = pending.get(w.name);
  if (seen.length && now - seen.at(-1).t > 3 * gap + 2000) seen.push({ t: seen.at(-1).t, n: NaN }); // nobody has looked
  seen.push({ t: now, n: w.pending });
  while (seen[0].t < now - minutes * 60e3) seen.shift();
}

// canvas makes the units of a drawing pixels, and empties it.
function canvas(node) {
  const { width, height } = node.getBoundingClientRect();
  node.setAttribute("viewBox", `0 0 ${width} ${height}`);
  node.replaceChildren();
  return [width, height];
}

function label(node, x, y, text, anchor, className = "axis") {
  const at = svg("text", { class: className, x, y, "text-anchor": anchor });
  at.textContent = text;
  node.append(at);
}

// nice returns a round number that is not below n: 1, 2 or 5 times a power of ten.
function nice(n) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, n)));
  return [1, 2, 5, 10].map((f) => f * power).find((f) => f >= n);
}

function drawPending(seen, now, describe) {
  const node = $("pending");
  const [width, height] = canvas(node);
  const [left, bottom, above] = [38, height - 18, 6];
  const values = seen.map((s) => s.n).filter((n) => !Number.isNaN(n));
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const span = Math.min(minutes, Math.max(1, Math.ceil((now - seen[0].t) / 60e3))) * 60e3;
  const top = nice(most);
  const x = (t) => width - ((now - t) / span) * (width - left);
  const y = (n) => bottom - (n / top) * (bottom - above);
  for (const n of [0, top / 2, top]) {
    node.append(svg("line", { class: "grid", x1: left, x2: width, y1: y(n), y2: y(n) }));
    label(node, left - 6, y(n) + 4, compact(n), "end");
  }
  label(node, left, height - 3, `${span / 60e3} min ago`, "start");
  label(node, width, height - 3, "now", "end");
  let path = "", area = "", begun = null, last = null;
  for (const s of seen) {
    if (Number.isNaN(s.n)) {
      if (begun) area += `L${x(last.t)} ${bottom}L${x(begun.t)} ${bottom}Z`;
      begun = last = null;
      continue;
    }
    const step = `${begun ? "L" : "M"}${x(s.t).toFixed(1)} ${y(s.n).toFixed(1)}`;
    path += step;
    area += step;
    begun ??= s;
    last = s;
  }
  if (begun) area += `L${x(last.t)} ${bottom}L${x(begun.t)} ${bottom}Z`;
  node.append(svg("path", { class: "area", d: area }), svg("path", { class: "curve", d: path }));
  setText($("pending-range"), `${compact(least)} to ${compact(most)}`);
  if (describe) node.setAttribute("aria-label", `Pending in the last ${span / 60e3} min: from ${count(least)} to ${count(most)}, now ${count(values.at(-1))}.`);
}

function drawLateness(w, describe) {
  const node = $("lateness");
  const counts = w.stats.Lateness.Counts;
  const total = counts.reduce((a, b) => a + b, 0);
  const [width, height] = canvas(node);
  const [left, bottom, above] = [38, height - 18, 14];
  const [p50, p99, max] = [w.lateness.p50, w.lateness.p99, w.stats.Lateness.Max].map(duration);
  setText($("quantiles"), total ? `p50 ≤ ${p50}, p99 ≤ ${p99}, max ${max}` : "nothing has fired");
  if (describe) node.setAttribute("aria-label", total ? `Lateness of ${count(total)}: half at most ${p50}, 99 percent at most ${p99}, the worst ${max}.` : "Nothing has fired yet.");

  // Bucket i ends at 2^i us; on both axes equal steps are equal factors.
  const step = (width - left) / counts.length;
  const top = 10 ** Math.max(1, Math.ceil(Math.log10(Math.max(1, ...counts))));
  const part = (n) => (n > 0 ? 0.06 + (0.94 * Math.log(n)) / Math.log(top) : 0);
  const x = (ns) => left + Math.min(counts.length, ns < 1e3 ? ns / 1e3 : 1 + Math.log2(ns / 1e3)) * step;
  for (const n of [1, Math.sqrt(top), top]) {
    const y = bottom - part(n) * (bottom - above);
    node.append(svg("line", { class: "grid", x1: left, x2: width, y1: y, y2: y }));
    label(node, left - 6, y + 4, compact(n), "end");
  }
  counts.forEach((n, i) => {
    const h = part(n) * (bottom - above);
    node.append(svg("rect", { class: "bar", x: left + i * step + 1, width: Math.max(1, step - 2), y: bottom - h, height: h }));
  });
  const every = width > 420 ? 10 : 1000;
  for (let ns = 1e3; ns <= 10e9; ns *= every) label(node, x(ns), height - 3, duration(ns), "middle");
  if (!total) return;
  // The names stand so that they do not cover one another: left, right, and right.
  const marks = [["p50", w.lateness.p50, "end"], ["p99", w.lateness.p99, "start"], ["max", w.stats.Lateness.Max, "start"]];
  for (const [, ns] of marks) node.append(svg("line", { class: "mark", x1: x(ns), x2: x(ns), y1: 0, y2: bottom }));
  for (const [i, [name, ns, anchor]] of marks.entries()) {
    if (i < 2 || x(ns) - x(w.lateness.p99) > 30) label(node, x(ns) + (anchor === "end" ? -4 : 4), 9, name, anchor, "mark-name");
  }
}

open();
