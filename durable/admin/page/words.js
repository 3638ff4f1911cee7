"use strict";
// How numbers, durations and times become words, and how words get into the page: by
// textContent and setAttribute only, so that no kind and no error can become markup.

const $ = (id) => document.getElementById(id);

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const count = (n) => (Math.abs(n) < 1e7 ? grouped : short).format(n);
const rate = (n) => (n < 10 ? tenths.format(n) : count(n)) + "\u00a0/s";
const jobs = (n) => count(n) + (n === 1 ? " job" : " jobs");

// duration writes seconds with two or three digits.
function duration(s) {
  const units = [["y", 31557600], ["d", 86400], ["h", 3600], ["min", 60], ["s", 1], ["ms", 1e-3], ["µs", 1e-6]];
  const [unit, size] = units.find(([, size]) => Math.abs(s) >= 0.9995 * size) ?? ["s", 1];
  const n = s / size;
  const text = n.toFixed(Math.abs(n) < 9.95 ? 1 : 0);
  return text.replace(/\.0$/, "") + "\u00a0" + unit;
}

// ---- Times ----
//
// All ages are by the server's clock, which the last answer has told: that of the browser
// may be wrong.

const clock = {
  skew: 0, // ms by which the server is ahead of the browser
  set(text) { this.skew = Date.parse(text) - Date.now(); },
  now() { return Date.now() + this.skew; },
};

// since is how many seconds ago a time was.
const since = (text) => (clock.now() - Date.parse(text)) / 1000;

// moment writes a time with its zone, without the day if that is today's.
function moment(text) {
  const ms = Date.parse(text);
  if (Number.isNaN(ms)) return String(text); // a year that JavaScript does not know
  const [day, time] = new Date(ms).toISOString().split("T");
  const today = new Date(clock.now()).toISOString().split("T")[0];
  return (day === today ? "" : day + "\u00a0") + time.slice(0, 8) + "\u00a0UTC";
}

function ago(text) {
  const s = since(text);
  if (Number.isNaN(s)) return "";
  if (Math.abs(s) < 1) return "now";
  return s > 0 ? duration(Math.floor(s)) + " ago" : "in " + duration(Math.ceil(-s));
}

// ---- What is written ----

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// A Ref that is too long for its line breaks after a dot.
function setRef(node, ref) {
  if (node.textContent !== ref) node.replaceChildren(...ref.split(/(?<=\.)/).flatMap((part) => [part, document.createElement("wbr")]));
}

function setTime(node, text) {
  if (!text) return setText(node, "–");
  if (node.getAttribute("datetime") !== text) node.setAttribute("datetime", text);
  setText(node, moment(text));
}

function make(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// rows gives node one child for each of items, in their order, and lets fill write it. A
// child stays with its key, so that a button never comes to mean another job.
function rows(node, items, keyOf, create, fill) {
  const old = new Map([...node.children].map((child) => [child.key, child]));
  let at = node.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    const child = old.get(key) ?? create(item);
    child.key = key;
    old.delete(key);
    fill(child, item);
    if (child === at) at = at.nextElementSibling;
    else node.insertBefore(child, at);
  }
  for (const child of old.values()) child.remove();
}

// list writes pairs of a term and a text into node, a dl. A third says that it is bad.
function list(node, pairs) {
  const create = () => make("div", {}, make("dt", {}), make("dd", {}));
  rows(node, pairs, ([term]) => term, create, (group, [term, text, bad]) => {
    setText(group.children[0], term);
    setText(group.children[1], text);
    group.classList.toggle("bad", !!bad);
  });
}

// part finds what a row has under a class.
const part = (row, name) => row.querySelector("." + name);

// ---- The tip: the values of what is under the pointer ----

const tip = {
  node: $("tip"),
  under: null,

  over(node, describe) {
    node.addEventListener("pointermove", (e) => {
      this.under = { x: e.clientX, y: e.clientY, describe };
      this.write();
    });
    node.addEventListener("pointerleave", () => this.hide());
  },

  hide() {
    this.under = null;
    this.node.hidden = true;
  },

  write() {
    const text = this.under?.describe(this.under.x);
    this.node.hidden = !text;
    if (!text) return;
    setText(this.node, text);
    const { width, height } = this.node.getBoundingClientRect();
    const room = document.documentElement.clientWidth - width - 8;
    const above = this.under.y - height - 14;
    this.node.style.left = Math.max(8, Math.min(this.under.x + 12, room)) + "px";
    this.node.style.top = (above < 8 ? this.under.y + 22 : above) + "px";
  },
};

addEventListener("keydown", (e) => e.key === "Escape" && tip.hide());
addEventListener("scroll", () => tip.hide(), { passive: true });
