// Two modes on the same prompt, side by side.

import { clearCycles } from "./cycles.js";
import { announce, byId, element, following } from "./dom.js";
import { facts, stream } from "./reply.js";

const NAMES = ["A", "B"];
const REFRESH_MS = 100;
const LARGEST_SEED = 2 ** 31;

export class Race {
  constructor({ model, controls, gauges, onModes }) {
    Object.assign(this, { model, controls, gauges });
    const second = ["fused", "lossless", "auto"].find((mode) => controls.modes.includes(mode)) ?? controls.modes[0];
    const first = controls.modes.includes("ar") ? "ar" : controls.modes[0];
    this.lanes = [first, second].map((mode, index) => new Lane(NAMES[index], mode, controls.modes, onModes));
    byId("lanes").replaceChildren(...this.lanes.map((lane) => lane.root));
  }

  get modes() {
    return this.lanes.map((lane) => lane.mode);
  }

  /** Run both lanes on `text`. With one seed they draw the same tokens wherever both modes are exact. */
  async send(text, signal) {
    byId("verdict").textContent = "";
    byId("prompt").textContent = text;
    clearCycles();
    this.gauges.begin(this.modes);
    const shared = { model: this.model, messages: [{ role: "user", content: text }], seed: seed() };
    this.lanes.forEach((lane) => lane.clear());
    const runs = this.lanes.map((lane, index) => () => this.#runLane(lane, index, shared, signal));
    const together = startsTogether();
    const replies = together ? await Promise.all(runs.map((run) => run())) : [await runs[0](), await runs[1]()];
    this.#judge(replies);
  }

  async #runLane(lane, index, shared, signal) {
    if (signal.aborted) return null;
    const fields = { ...shared, ...this.controls.request(lane.mode) };
    const onCommit = (measure) => {
      lane.measure = measure;
      this.gauges.update(measure, index);
    };
    const reply = await lane.run({ fields, signal, onCommit });
    if (reply) this.gauges.finish(reply.measure);
    return reply;
  }

  #judge(replies) {
    if (!replies.every((reply) => reply?.measure.tokens)) return;
    const text = verdict(replies, this.modes);
    byId("verdict").textContent = text;
    announce(text);
  }
}

/** What a race came to, in words. `replies` of the two lanes. */
export function verdict(replies, modes) {
  if (replies.some((reply) => reply.reason === "stopped")) return "Stopped.";
  const rates = replies.map((reply) => reply.measure.rate());
  const winner = rates[0] >= rates[1] ? 0 : 1;
  const names = modes[0] === modes[1] ? modes.map((mode, index) => `${mode} (${NAMES[index]})`) : modes;
  const ratio = (rates[winner] / rates[1 - winner]).toFixed(2);
  const same = replies[0].text === replies[1].text ? "The texts are identical." : `The texts ${divergence(replies)}.`;
  return `${names[winner]} made ${ratio} times the tokens per second of ${names[1 - winner]}. ${same}`;
}

function divergence([{ text: one }, { text: other }]) {
  let index = 0;
  while (index < one.length && one[index] === other[index]) index++;
  return index ? `agree for ${index} characters` : "differ from the first character";
}

const seed = () => Math.floor(Math.random() * LARGEST_SEED);
const startsTogether = () => document.querySelector("input[name=start]:checked").value === "together";

class Lane {
  constructor(name, mode, modes, onModes) {
    this.name = name;
    const options = modes.map((each) => element("option", { textContent: each, selected: each === mode }));
    this.select = element("select", { ariaLabel: `Mode of lane ${name}` }, ...options);
    this.select.addEventListener("change", onModes);
    this.rate = element("output", { className: "rate", textContent: "0.0", ariaLive: "off" });
    this.text = element("div", { className: "text" });
    this.body = element("div", { className: "lane-body", role: "region", tabIndex: 0 }, this.text);
    this.body.ariaLabel = `Text of lane ${name}`;
    this.meter = element("div", {});
    const unit = element("span", { className: "unit", textContent: "tokens/s" });
    const head = element("header", {}, this.select, element("span", { className: "speed" }, this.rate, unit));
    this.root = element("article", { className: "lane", ariaLabel: `Lane ${name}` }, head, this.body, this.meter);
  }

  get mode() {
    return this.select.value;
  }

  clear() {
    this.measure = null;
    this.text.replaceChildren();
    this.#show();
  }

  /** Stream a reply into this lane; null when it fails, which the lane shows. */
  async run({ fields, signal, onCommit }) {
    this.select.disabled = true;
    this.root.classList.add("running");
    const ticking = setInterval(() => this.#show(), REFRESH_MS);
    try {
      const reply = await stream({ fields, container: this.text, scroller: this.body, signal, onCommit, lane: this.name });
      this.measure = reply.measure;
      this.#show(reply.reason);
      return reply;
    } catch (error) {
      this.text.append(element("p", { className: "error", role: "alert", textContent: error.message }));
      return null;
    } finally {
      clearInterval(ticking);
      this.select.disabled = false;
      this.root.classList.remove("running");
    }
  }

  #show(reason) {
    this.rate.textContent = this.measure ? this.measure.rate(performance.now()).toFixed(1) : "0.0";
    const line = this.measure ? [facts(this.measure, reason)] : [];
    following(this.body, () => this.meter.replaceChildren(...line));
  }
}
