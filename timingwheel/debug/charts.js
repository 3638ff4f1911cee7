"use strict";
// The two charts: how many have been pending in the last minutes, and how late tasks
// were.

const minutes = 5;
const pending = new Map(); // of each wheel, by name: minutes of {t, n}

function remember(w, now) {
  if (!pending.has(w.name)) pending.set(w.name, []);
  const seen = pending.get(w.name);
  if (seen.length && now - seen.at(-1).t > 3 * beat + 2000) seen.push({ t: seen.at(-1).t, n: NaN }); // nobody has watched
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

// grid draws a horizontal line with its value.
function grid(node, left, right, y, n) {
  node.append(svg("line", { class: "grid", x1: left, x2: right, y1: y, y2: y }));
  label(node, left - 6, y + 4, compact(n), "end");
}

const left = 38; // where both charts begin; the names of the lines stand before it

// ---- Pending ----

const curve = { seen: [], now: 0, span: 60e3 }; // as drawn last

function drawPending(seen, now, describe) {
  const node = $("pending");
  const [width, height] = canvas(node);
  const [bottom, above] = [height - 18, 6];
  const values = seen.map((s) => s.n).filter((n) => !Number.isNaN(n));
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const span = Math.min(minutes, Math.max(1, Math.ceil((now - seen[0].t) / 60e3))) * 60e3;
  Object.assign(curve, { seen, now, span });
  const top = nice(most);
  const x = (t) => width - ((now - t) / span) * (width - left);
  const y = (n) => bottom - (n / top) * (bottom - above);
  for (const n of [0, top / 2, top]) grid(node, left, width, y(n), n);
  label(node, left, height - 3, `${span / 60e3} min ago`, "start");
  label(node, width, height - 3, "now", "end");
  node.append(...outlines(seen, x, y, bottom));
  setText($("pending-range"), `${compact(least)} to ${compact(most)}`);
  if (describe) node.setAttribute("aria-label", `Pending in the last ${span / 60e3} min: from ${count(least)} to ${count(most)}, now ${count(values.at(-1))}.`);
}

// outlines returns the curve and the area below it. Both are interrupted where nobody has
// watched.
function outlines(seen, x, y, bottom) {
  let path = "", area = "", begun = null, last = null;
  const end = () => {
    if (begun) area += `L${x(last.t)} ${bottom}L${x(begun.t)} ${bottom}Z`;
    begun = last = null;
  };
  for (const s of seen) {
    if (Number.isNaN(s.n)) {
      end();
      continue;
    }
    const step = `${begun ? "L" : "M"}${x(s.t).toFixed(1)} ${y(s.n).toFixed(1)}`;
    path += step;
    area += step;
    begun ??= s;
    last = s;
  }
  end();
  return [svg("path", { class: "area", d: area }), svg("path", { class: "curve", d: path })];
}

tip.over($("pending"), (x) => {
  const box = $("pending").getBoundingClientRect();
  const time = curve.now - ((box.right - x) / (box.width - left)) * curve.span;
  const near = curve.seen.reduce((best, s) => (!best || Math.abs(s.t - time) < Math.abs(best.t - time) ? s : best), null);
  if (!near || Number.isNaN(near.n) || Math.abs(near.t - time) > curve.span / 30) return "";
  return `${count(near.n)} pending\n${near.t === curve.now ? "now" : duration((curve.now - near.t) * 1e6) + " ago"}`;
});

// ---- Lateness ----
//
// Bucket i ends at 2^i µs. On both axes equal steps are equal factors.

const bars = { all: [], recent: [], since: "" }; // as drawn last

// sinceWhen says which time the recent figures are of.
const sinceWhen = (recent) => (recent.span >= 60e9 ? "last minute" : recent.span > 0 ? "last " + duration(recent.span) : "last minute");

function drawLateness(w, describe) {
  const node = $("lateness");
  const all = w.stats.Lateness, recent = w.recent.lateness;
  Object.assign(bars, { all: all.Counts, recent: recent.Counts, since: sinceWhen(w.recent) });
  showQuantiles(w);
  if (describe) node.setAttribute("aria-label", `Lateness. In the ${bars.since}: ${spoken(recent)}. Since the start: ${spoken(all)}.`);

  const [width, height] = canvas(node);
  const [bottom, above] = [height - 18, 14];
  const step = (width - left) / all.Counts.length;
  const top = powerAbove(Math.max(...all.Counts));
  const part = (n) => (n > 0 ? 0.06 + (0.94 * Math.log(n)) / Math.log(top) : 0);
  const x = (ns) => left + Math.min(all.Counts.length, ns < 1e3 ? ns / 1e3 : 1 + Math.log2(ns / 1e3)) * step;
  for (const n of powers(top, 3)) grid(node, left, width, bottom - part(n) * (bottom - above), n);
  for (const [className, counts] of [["bar old", all.Counts], ["bar", recent.Counts]]) {
    counts.forEach((n, i) => {
      const h = part(n) * (bottom - above);
      node.append(svg("rect", { class: className, x: left + i * step + 1, width: Math.max(1, step - 2), y: bottom - h, height: h }));
    });
  }
  const every = width > 420 ? 10 : 1000;
  for (let ns = 1e3; ns <= 10e9; ns *= every) label(node, x(ns), height - 3, duration(ns), "middle");
  drawMarks(node, total(recent) ? recent : all, x, bottom);
}

const total = (histogram) => histogram.Counts.reduce((a, b) => a + b, 0);

// drawMarks marks the quantiles, unless nothing has fired. Their names stand left, right
// and right of them, so that they do not cover one another.
function drawMarks(node, histogram, x, bottom) {
  if (!total(histogram)) return;
  const marks = [["p50", histogram.P50, "end"], ["p99", histogram.P99, "start"], ["max", histogram.Max, "start"]];
  for (const [, ns] of marks) node.append(svg("line", { class: "mark", x1: x(ns), x2: x(ns), y1: 0, y2: bottom }));
  for (const [i, [name, ns, anchor]] of marks.entries()) {
    if (i < 2 || x(ns) - x(histogram.P99) > 30) label(node, x(ns) + (anchor === "end" ? -4 : 4), 9, name, anchor, "mark-name");
  }
}

function spoken(histogram) {
  const n = total(histogram);
  if (!n) return "nothing has expired";
  return `${count(n)} expired, half at most ${duration(histogram.P50)} late, 99 percent at most ${duration(histogram.P99)}, all at most ${duration(histogram.Max)}`;
}

function showQuantiles(w) {
  const create = () => {
    const row = make("tr", {}, make("th", { scope: "row" }));
    for (let i = 0; i < 4; i++) row.append(make("td", {}));
    return row;
  };
  rows($("quantiles"), [[bars.since, w.recent.lateness], ["since the start", w.stats.Lateness]], create, (row, [name, histogram]) => {
    const n = total(histogram);
    const late = [histogram.P50, histogram.P99, histogram.Max].map((ns) => (n ? duration(ns) : "–"));
    [name, ...late, compact(n)].forEach((text, i) => setText(row.children[i], text));
  });
}

tip.over($("lateness"), (x) => {
  const box = $("lateness").getBoundingClientRect();
  const i = Math.floor(((x - box.left - left) / (box.width - left)) * bars.all.length);
  if (!bars.all.length || i < 0 || i >= bars.all.length) return "";
  const [from, to] = [i ? duration(2 ** (i - 1) * 1e3) : 0, duration(2 ** i * 1e3)];
  const range = i === 0 ? `less than ${to} late` : i === bars.all.length - 1 ? `${from} late or more` : `${from} to ${to} late`;
  return `${range}\n${bars.since}: ${count(bars.recent[i])}\nsince the start: ${count(bars.all[i])}`;
});
