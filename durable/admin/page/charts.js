"use strict";
// The curves. The server keeps no history: the page makes it of the summaries that it is
// sent, whose counters only grow, and forgets what is older than some minutes.

const kept = 5 * 60e3; // ms
const smooth = 3; // rates and quantiles are of so many polls
const samples = []; // {t, broken, counters, rates, p50, p99, oldest}
let expected = 2000; // ms from one poll to the next

const series = [
  { key: "added", name: "added", counter: "added", about: "accepted here" },
  { key: "begun", name: "begun", counter: "attempts", about: "attempts that began here" },
  { key: "done", name: "done", counter: "done", about: "attempts that ended well" },
  { key: "failed", name: "failed", counter: "failed", about: "attempts that are tried again" },
  { key: "died", name: "died", counter: "dead", about: "jobs that are dead" },
];

// remember adds a summary to the samples. After a pause, or where a counter has fallen since
// another process answers, the curves are broken.
function remember(summary) {
  const t = Date.parse(summary.now);
  const last = samples.at(-1);
  if (last && t <= last.t) {
    if (last.t - t < 1000) return;
    samples.length = 0; // the clock was set back
  }
  const fell = last && (series.some((s) => summary[s.counter] < last.summary[s.counter]) || summary.lateness.length !== last.summary.lateness.length);
  const sample = { t, summary, broken: !last || fell || t - last.t > 3 * expected + 4000 };
  samples.push(sample);
  while (samples[0].t < t - kept) samples.shift();
  if (samples.length) samples[0].broken = true;

  let from = samples.length - 1;
  while (from > 0 && samples.length - from <= smooth && !samples[from].broken) from--;
  const before = samples[from];
  sample.oldest = summary.backlogError ? (last?.oldest ?? 0) : Math.max(0, ...summary.kinds.map((k) => k.age));
  if (before === sample) return;
  const seconds = (t - before.t) / 1000;
  sample.rates = {};
  for (const s of series) sample.rates[s.key] = (summary[s.counter] - before.summary[s.counter]) / seconds;
  const late = summary.lateness.map((n, i) => n - before.summary.lateness[i]);
  if (total(late)) [sample.p50, sample.p99] = [quantile(late, 0.5), quantile(late, 0.99)];
}

const total = (counts) => counts.reduce((a, b) => a + b, 0);

// quantile returns seconds: the bound of the bucket in which it is. Bucket i ends at 2^i µs.
function quantile(counts, q) {
  let rest = Math.ceil(q * total(counts));
  const i = counts.findIndex((n) => (rest -= n) <= 0);
  return 2 ** Math.max(0, i) * 1e-6;
}

const unbounded = (counts, s) => s >= 2 ** (counts.length - 1) * 1e-6;
const atMost = (counts, q) => (!total(counts) ? "–" : (unbounded(counts, quantile(counts, q)) ? "> " : "") + duration(quantile(counts, q)));

// span is how much time the curves show, in ms: what there is, but at least a minute.
const span = () => Math.min(5, Math.max(1, Math.ceil((samples.at(-1).t - samples[0].t) / 60e3))) * 60e3;

// canvas makes the units of a drawing pixels, and empties it.
function canvas(node) {
  const { width, height } = node.getBoundingClientRect();
  node.setAttribute("viewBox", `0 0 ${width} ${height}`);
  node.replaceChildren();
  return [width, height];
}

function label(node, x, y, text, anchor) {
  const at = svg("text", { class: "axis", x, y, "text-anchor": anchor });
  at.textContent = text;
  node.append(at);
}

// path returns a curve of what value says of the samples, and the area below it. It is
// interrupted where nothing is known. A value alone is a dot.
function path(value, x, y, bottom) {
  let line = "", area = "", first = null, last = null;
  const end = () => {
    if (!last) return;
    if (first === last) line += `h0`;
    area += `L${x(last.t).toFixed(1)} ${bottom}L${x(first.t).toFixed(1)} ${bottom}Z`;
    first = last = null;
  };
  for (const s of samples) {
    const v = value(s);
    if (s.broken || v === undefined) end();
    if (v === undefined) continue;
    const step = `${last ? "L" : "M"}${x(s.t).toFixed(1)} ${y(v).toFixed(1)}`;
    line += step;
    area += step;
    first ??= s;
    last = s;
  }
  end();
  return { line, area };
}

// nearest returns the sample that is nearest to a place in a drawing, or null.
function nearest(node, x, left) {
  if (!samples.length) return null;
  const box = node.getBoundingClientRect();
  const t = samples.at(-1).t - ((box.right - x) / (box.width - left)) * span();
  const near = samples.reduce((best, s) => (Math.abs(s.t - t) < Math.abs(best.t - t) ? s : best));
  return Math.abs(near.t - t) > span() / 20 ? null : near;
}

const at = (s) => moment(new Date(s.t).toISOString());

// ---- Rates: a curve each, on a scale of its own ----

function drawRates(describe) {
  const known = samples.filter((s) => s.rates);
  const create = (s) => {
    const drawing = svg("svg", { class: "curve-" + s.key, role: "img" });
    tip.over(drawing, (x) => {
      const near = nearest(drawing, x, 0);
      return near?.rates ? `${rate(near.rates[s.key])} ${s.name}\n${at(near)}` : "";
    });
    return make("li", {}, make("b", {}, s.name), make("span", { class: "value" }), make("span", { class: "peak" }), drawing);
  };
  rows($("rates"), series, (s) => s.key, create, (row, s) => {
    const values = known.map((sample) => sample.rates[s.key]);
    const most = Math.max(0, ...values);
    const now = known.length && samples.at(-1).rates ? rate(samples.at(-1).rates[s.key]) : "–";
    setText(part(row, "value"), now);
    setText(part(row, "peak"), values.length ? `peak ${rate(most)}` : "");
    const node = row.lastElementChild;
    const [width, height] = canvas(node);
    const bottom = height - 1;
    const x = (t) => width - 2 - ((samples.at(-1).t - t) / span()) * (width - 2);
    const { line, area } = path((sample) => sample.rates?.[s.key], x, (v) => bottom - (v / (most || 1)) * (height - 5), bottom);
    node.append(svg("line", { class: "grid", x1: 0, x2: width, y1: bottom, y2: bottom }));
    if (most) node.append(svg("path", { class: "area", d: area }), svg("path", { class: "curve", d: line }));
    if (describe) node.setAttribute("aria-label", `${s.about}: now ${now}, at most ${rate(most)}`);
  });
}

// ---- Lateness: on the upright axis equal steps are equal factors ----

const ticks = [1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1, 10, 60, 600, 3600, 36000, 86400, 864000, 8640000, 31557600, 315576000]; // s
const left = 46; // where the curves begin; the values of the lines stand before it

function drawLateness(describe) {
  const node = $("lateness");
  const [width, height] = canvas(node);
  const [above, bottom] = [8, height - 18];
  const values = samples.flatMap((s) => [s.p50, s.p99, s.oldest || undefined]).filter((v) => v !== undefined);
  const low = ticks.findLast((t) => t <= Math.min(1e-3, ...values)) ?? ticks[0];
  const high = ticks.find((t) => t >= Math.max(1000 * low, ...values)) ?? ticks.at(-1);
  const x = (t) => width - 4 - ((samples.at(-1).t - t) / span()) * (width - left - 4);
  const y = (s) => bottom - (Math.log(Math.max(s, low) / low) / Math.log(high / low)) * (bottom - above);
  const shown = ticks.slice(ticks.indexOf(low), ticks.indexOf(high) + 1);
  for (const t of shown.filter((_, i) => i % Math.ceil(shown.length / 6) === 0)) {
    node.append(svg("line", { class: "grid", x1: left, x2: width, y1: y(t), y2: y(t) }));
    label(node, left - 6, y(t) + 4, duration(t), "end");
  }
  label(node, left, height - 3, `${span() / 60e3}\u00a0min ago`, "start");
  label(node, width, height - 3, "now", "end");
  const p50 = path((s) => s.p50, x, y, bottom);
  node.append(svg("path", { class: "area", d: p50.area }), svg("path", { class: "curve p99", d: path((s) => s.p99, x, y, bottom).line }), svg("path", { class: "curve", d: p50.line }),
    svg("path", { class: "curve oldest", d: path((s) => s.oldest || undefined, x, y, bottom).line }));
  showQuantiles();
  if (!describe) return;
  const { p50: half, p99: most, oldest } = samples.at(-1);
  node.setAttribute("aria-label", `Lateness: ${half === undefined ? "nothing has begun just now" : `now half at most ${duration(half)}, 99 percent at most ${duration(most)}`}; ` +
    (oldest ? `the oldest job that waits has been due for ${duration(oldest)}` : "nothing that is due waits"));
}

tip.over($("lateness"), (x) => {
  const near = nearest($("lateness"), x, left);
  if (!near) return "";
  const late = near.p50 === undefined ? "nothing began" : `p50 ≤ ${duration(near.p50)}, p99 ≤ ${duration(near.p99)}`;
  return `${late}\noldest that waits: ${near.oldest ? duration(near.oldest) : "none"}\n${at(near)}`;
});

function showQuantiles() {
  const last = samples.at(-1).summary.lateness;
  let from = samples.findLastIndex((s) => s.broken);
  const recent = last.map((n, i) => n - samples[Math.max(0, from)].summary.lateness[i]);
  const create = () => make("tr", {}, make("th", { scope: "row" }), make("td", {}), make("td", {}), make("td", {}));
  const name = "last " + duration(Math.round((samples.at(-1).t - samples[Math.max(0, from)].t) / 1000));
  rows($("quantiles"), [["recent", name, recent], ["all", "since the start", last]], ([key]) => key, create, (row, [, title, counts]) => {
    [title, atMost(counts, 0.5), atMost(counts, 0.99), count(total(counts))].forEach((text, i) => setText(row.children[i], text));
  });
}

let described = -Infinity; // when the descriptions for screen readers were last written

function drawCharts() {
  if (!samples.length) return;
  const describe = performance.now() - described > 5000;
  if (describe) described = performance.now();
  for (const node of document.querySelectorAll(".span")) setText(node, `${span() / 60e3}\u00a0min`);
  drawRates(describe);
  drawLateness(describe);
  tip.write();
}

addEventListener("resize", drawCharts);
