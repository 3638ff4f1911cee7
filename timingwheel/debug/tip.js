"use strict";
// The tip shows the values of what is under the pointer. It is written anew with each
// event, since what is drawn there changes while the pointer rests. What it says can also
// be read elsewhere on the page, or in the description of the drawing, so it is hidden
// from screen readers.

const tip = {
  node: $("tip"),
  under: null, // where the pointer is, and who describes what is there

  // over shows what describe says of a place in node. Describe gets the place in pixels
  // of the window. It returns nothing for a place that has no values.
  over(node, describe) {
    const point = (e) => {
      this.under = { x: e.clientX, y: e.clientY, describe };
      this.write();
    };
    node.addEventListener("pointermove", point);
    node.addEventListener("pointerdown", point);
    node.addEventListener("pointerleave", (e) => e.pointerType === "touch" || this.hide()); // a finger has left it to read
  },

  hide() {
    this.under = null;
    this.node.hidden = true;
  },

  write() {
    const text = this.under?.describe(this.under.x, this.under.y);
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
addEventListener("pointerdown", () => tip.hide(), { capture: true }); // before the drawing shows another
