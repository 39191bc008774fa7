// The panels beside the text: acceptance and latency, redrawn a few times a second at most.

import { drawAcceptance, drawLatency } from "./charts.js";
import { byId } from "./dom.js";

const REPLIES = 24;
const REDRAW_MS = 120;

export class Gauges {
  constructor() {
    this.running = []; // the measures of the replies under way, or of the last ones
    this.finished = [];
    this.due = 0;
    this.draw();
  }

  /** New replies begin; `names` of the lanes go with them. */
  begin(names) {
    this.running = [];
    byId("acceptance-note").textContent = names.join(" · ");
  }

  /** A measure has changed. */
  update(measure, lane = 0) {
    this.running[lane] = measure;
    if (this.due) return;
    this.due = setTimeout(() => {
      this.due = 0;
      this.#drawAcceptance();
    }, REDRAW_MS);
  }

  /** A reply has ended. */
  finish(measure) {
    this.finished = [...this.finished, measure].slice(-REPLIES);
    this.draw();
  }

  draw() {
    this.#drawAcceptance();
    drawLatency(byId("latency"), this.finished);
  }

  #drawAcceptance() {
    drawAcceptance(byId("acceptance"), this.running.filter(Boolean));
  }
}
