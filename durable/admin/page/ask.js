"use strict";
// How the page asks the handler: again and again for what it shows, and once for what a
// button is pressed for.

const base = location.origin + location.pathname; // without a password that may be in the address
const patience = 40e3; // ms; the handler gives up before

class Refused extends Error {} // the handler has answered, with an error

// ask returns what the handler answers. With a command it writes.
async function ask(what, command) {
  const options = { cache: "no-store", headers: { Accept: "application/json" } };
  if (command) {
    options.method = "POST";
    options.headers["X-Tickwheel-Admin"] = "page"; // a page of another site cannot send it
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(command);
  } else {
    options.signal = AbortSignal.timeout(patience);
  }
  const answer = await fetch(new URL(what, base), options);
  let value;
  try {
    value = await answer.json();
  } catch {
    throw new Refused(`the answer is no JSON, with status ${answer.status}; perhaps you have to log in again`);
  }
  if (!answer.ok) throw new Refused(value?.error ?? `status ${answer.status}`);
  return value;
}

// reason says why ask has failed.
const reason = (error) => (error instanceof Refused ? error.message : error.name === "TimeoutError" ? `there was no answer for ${patience / 1000}\u00a0s` : "the server cannot be reached");

// Poll asks for something again and again. What took long, twice in a row, is asked for less often, so
// that to watch a queue takes at most a tenth of the time of what answers. One answer that comes late
// delays nothing: it waited for a server that started again, maybe.
class Poll {
  static all = [];

  constructor(what, every, show, failed) {
    Object.assign(this, { what, every, show, failed, timer: 0, turn: 0, began: 0, took: 0 });
    Poll.all.push(this);
  }

  stop() {
    clearTimeout(this.timer);
    this.turn++; // an answer that is on its way is not for now
    this.began = 0;
  }

  // pause returns when to ask again, after an answer that took so long.
  pause(took) {
    const usual = Math.min(took, this.took);
    this.took = took;
    return Math.max(this.every, 10 * usual);
  }

  async start() {
    this.stop();
    const turn = this.turn;
    const began = (this.began = performance.now());
    let answer, error;
    try {
      answer = await ask(this.what());
    } catch (e) {
      error = e;
    }
    if (turn !== this.turn) return;
    this.began = 0;
    this.timer = setTimeout(() => this.start(), this.pause(performance.now() - began));
    if (error) this.failed(error);
    else this.show(answer, began);
  }
}

// ---- Buttons that write ----

// act has a button send a command when it is pressed, and, if it says so by sure, pressed
// once more. Outcome gets what came of it.
function act(button, { word, sure, send, outcome }) {
  let timer = 0;
  const arm = (on) => {
    clearTimeout(timer);
    timer = on ? setTimeout(arm, 4000, false) : 0;
    button.classList.toggle("armed", on);
    setText(button, on ? sure : typeof word === "function" ? word() : word);
  };
  arm(false);
  button.type = "button";
  button.addEventListener("click", async () => {
    if (sure && !timer) return arm(true);
    arm(false);
    button.disabled = true;
    const [results, wrong] = await ask(...send()).then((results) => [results, null], (error) => [null, reason(error)]);
    button.disabled = false;
    outcome(results, wrong);
  });
  return button;
}

// failure returns what went wrong with one that was named in a command, or "".
const failure = (results, wrong) => wrong ?? (results[0].done ? "" : results[0].error || results[0].why || "nothing was done");
