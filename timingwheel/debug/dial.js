"use strict";
// The dial is read like a clock: the finest wheel is the outermost ring, as the second
// hand is the longest. Tasks enter further inside, cascade outward from ring to ring as
// their time approaches, and leave over the rim when they fire. Each ring begins right of
// the gap at twelve o'clock, where its name is.
//
// Samples are some tenths of a second apart, and in that time the finest hand may go
// round. So a ring shows what has happened between the last two samples: its hand moves
// from where it was to where it is and empties the slots that it passes. They are filled
// again when it comes round.

const still = matchMedia("(prefers-reduced-motion: reduce)");

const rim = 300; // outer radius of the finest ring
const hub = 104; // inner radius of the coarsest
const shades = 8;
let interval = 250; // ms between the last two samples of the wheel that is shown

const dial = {
  node: $("dial"),
  shown: null, // the wheel of the last event
  shape: "", // what the rings were built for
  rings: [], // the finest first
  top: 10, // the most that a slot is drawn with, a power of ten
  sparks: 0,

  clear() {
    this.shown = null;
    this.shape = "";
    this.rings = [];
    this.node.replaceChildren();
  },

  show(w, old, describe) {
    const shape = JSON.stringify([w.name, w.rings.map((r) => [r.tick, r.slots])]);
    const first = shape !== this.shape;
    if (first) this.build(w, shape);
    this.shown = w;
    this.rescale(w);
    this.node.classList.toggle("stopped", w.stats.Closed);
    const total = compact(w.stats.Pending);
    setText(this.total, w.stats.Pending < 1e5 ? count(w.stats.Pending) : total);
    this.total.setAttribute("font-size", this.total.textContent.length > 6 ? 40 : 50);
    setText(this.totalName, w.stats.Closed ? "stopped" : "pending");
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

  // rescale lets the scale of shades follow the fullest slot, by powers of ten. It falls
  // only when the fullest slot has become much emptier, so that the shades do not
  // flicker.
  rescale(w) {
    const most = Math.max(1, ...w.rings.flatMap((r) => r.segments));
    let top = this.top;
    if (most > top || most < top / 30) top = powerAbove(most);
    if (top === this.top && $("scale").firstChild) return;
    this.top = top;
    for (const r of this.rings) r.values.forEach((n, i) => r.set(i, n, true));
    const boxes = Array.from({ length: shades }, (_, i) => svg("rect", { class: "s" + (i + 1), x: i * 15, y: 2, width: 14, height: 8 }));
    const marks = powers(top, 3).map((n) => {
      const text = svg("text", { x: 2 + (116 * Math.log(n)) / Math.log(top), y: 21 });
      text.textContent = compact(n);
      return text;
    });
    $("scale").replaceChildren(svg("svg", { viewBox: "0 0 120 22" }, ...boxes, ...marks));
  },

  // describe says what is in the slots at a place on the screen, for the tip.
  describe(x, y) {
    const matrix = this.node.getScreenCTM();
    if (!this.shown || !matrix) return "";
    const at = new DOMPoint(x, y).matrixTransform(matrix.inverse());
    const radius = Math.hypot(at.x, at.y);
    const level = this.rings.findIndex((r) => radius >= r.inner && radius <= r.outer);
    if (level < 0) return "";
    const r = this.shown.rings[level];
    const segment = this.rings[level].segment(Math.atan2(at.x, -at.y));
    if (segment < 0) return `ring of ${count(r.slots)} slots of ${duration(r.tick)}`;
    const each = r.slots / r.segments.length;
    const [from, to] = [segment * each, (segment + 1) * each];
    const slots = each === 1 ? `slot ${count(to)}` : `slots ${count(from + 1)} to ${count(to)}`;
    return `${slots} of ${count(r.slots)}, ${duration(r.tick)} each\n${tasks(r.segments[segment])}\n${this.when(level, from, to)}`;
  },

  // when says when the hand comes to the slots of a ring from one to another.
  when(level, from, to) {
    const r = this.shown.rings[level];
    const begin = r.currentTime - (r.currentTime % (r.tick * r.slots)); // of this revolution
    if (begin + to * r.tick <= r.currentTime) return "the hand has passed";
    const left = begin + from * r.tick - this.shown.stats.Now;
    const what = level ? "cascading" : "due";
    return left > 0 ? `${what} in ${duration(left)}` : `${what} now`;
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

  // scatter sends sparks for what has cascaded or fired between two events: from the hand
  // of a ring to where the finer ring has been filled, and from the finest ring over the
  // rim. Their number grows with the logarithm of the number of tasks.
  scatter(w, old) {
    this.rings.forEach((ring, i) => {
      const before = old.rings[i];
      if (!before) return;
      const n = i ? w.rings[i].cascaded - before.cascaded : w.stats.Expired - old.stats.Expired;
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
    dot.animate(keyframes, { duration, delay: when * interval + Math.random() * 120, easing: "ease-out", fill: "both" }).onfinish = () => {
      dot.remove();
      this.sparks--;
    };
  },
};

// point returns where an angle is, clockwise from twelve o'clock.
const point = (r, a) => [+(r * Math.sin(a)).toFixed(2), +(-r * Math.cos(a)).toFixed(2)];

// fullest returns how much the fullest segments hold, without the fullest one in fifty.
// One of these may hold a hundred times as much, and would make all others flat.
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
    this.most = fullest(r.segments); // in the last events
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

  // segment returns the number of the segment at an angle, or -1 in the gap.
  segment(angle) {
    const turn = (angle + 2 * Math.PI) % (2 * Math.PI);
    const part = (turn - this.gap) / (2 * Math.PI - 2 * this.gap);
    return part < 0 || part >= 1 ? -1 : Math.floor(part * this.slots.length);
  }

  // set draws a slot with n entries. Its shade goes with the logarithm of n, by the same
  // scale on all rings. Its height goes with the root of n, relative to its ring. So both
  // a slot of three and a slot of thousands can be seen.
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

  // next begins the movement to what an event says.
  next(r, start, atOnce) {
    this.setAll(this.goal); // what is left of the last movement
    this.goal = r.segments;
    this.most = Math.max(this.most * 0.75, fullest(r.segments)); // falls slowly, or all bars would jump
    this.from = this.drawn = this.to;
    this.to = r.currentTime / this.revolution;
    this.start = start;
    this.span = interval;
    const turns = this.to - this.from;
    if (atOnce || turns < 0 || turns > 2) this.from = this.drawn = this.to;
    if (Math.floor(this.from) !== Math.floor(this.to)) return;
    const passing = [this.slot(this.from), this.slot(this.to)];
    this.goal.forEach((n, i) => (i < passing[0] || i >= passing[1]) && this.set(i, n));
  }

  slot(time) {
    return Math.floor((time - Math.floor(time)) * this.slots.length);
  }

  // step draws the ring as it is now, and reports whether the movement goes on.
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

  // round returns at which part of its way the hand comes round, or any part if it does
  // not.
  round() {
    const turns = this.to - this.from;
    const first = Math.ceil(this.from) - this.from;
    return turns > 0 && first < turns ? first / turns : Math.random();
  }

  // somewhere returns the angle of one of the slots that are being filled.
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
  return `${w.name}: ${count(w.stats.Pending)} pending${w.stats.Closed ? ", stopped" : ""}, on ${rings.length} rings, from the finest. ${rings.join("; ")}.`;
}

tip.over(dial.node, (x, y) => dial.describe(x, y));
