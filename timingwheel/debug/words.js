"use strict";
// How numbers and durations become words, and how words get into the page: by textContent
// and setAttribute only, so that no name can become markup.

const $ = (id) => document.getElementById(id);

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const count = (n) => grouped.format(n);
const rate = (n) => (n < 10 ? tenths : grouped).format(n);
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 }).format;
const tasks = (n) => count(n) + (n === 1 ? " task" : " tasks");

// duration writes nanoseconds with two or three digits.
function duration(ns) {
  const units = [["y", 31557600e9], ["d", 86400e9], ["h", 3600e9], ["min", 60e9], ["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];
  const [unit, size] = units.find(([, size]) => Math.abs(ns) >= size) ?? ["s", 1e9];
  const n = ns / size;
  return n.toFixed(Math.abs(n) < 10 && !Number.isInteger(n) ? 1 : 0) + "\u00a0" + unit;
}

// powers returns at most most + 1 powers of ten from 1 to top, in equal steps. Only they
// are whole numbers that stand at equal distances on an axis of logarithms.
function powers(top, most) {
  const digits = Math.round(Math.log10(top));
  const step = Math.max(1, Math.ceil(digits / most));
  return Array.from({ length: Math.floor(digits / step) + 1 }, (_, i) => 10 ** (i * step));
}

// powerAbove returns the least power of ten that is not below n, but at least 10.
const powerAbove = (n) => 10 ** Math.max(1, Math.ceil(Math.log10(Math.max(1, n))));

// nice returns a round even number that is not below n: its half is a whole number too.
function nice(n) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, n)));
  return Math.max(2, [1, 2, 4, 6, 8, 10].map((f) => f * power).find((f) => f >= n));
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
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

// rows gives node one child for each of items, and lets fill write each child.
function rows(node, items, create, fill) {
  while (node.children.length > items.length) node.lastChild.remove();
  while (node.children.length < items.length) node.append(create());
  items.forEach((item, i) => fill(node.children[i], item));
}

// list writes pairs of a term and a text into node, a dl.
function list(node, pairs) {
  const create = () => make("div", {}, make("dt", {}), make("dd", {}));
  rows(node, pairs, create, (group, [term, text]) => {
    setText(group.children[0], term);
    setText(group.children[1], text);
  });
}
