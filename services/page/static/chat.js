// The conversation: its turns on the page, and what of it goes to the model.

import { clearCycles } from "./cycles.js";
import { announce, byId, element, following } from "./dom.js";
import { duration, Measure } from "./measure.js";
import { facts, stream } from "./reply.js";

const SAMPLES = [
  "Why is the sky blue?",
  "A baker fills 6 trays with 8 rolls each and sells 29 rolls. How many rolls are left?",
  "Count from one to twenty in words.",
];
const REFRESH_MS = 150;

export class Chat {
  /** `onTurn` hears the messages after each turn, for the history. */
  constructor({ model, controls, gauges, onTurn, onSample }) {
    Object.assign(this, { model, controls, gauges, onTurn });
    this.messages = [];
    this.turns = byId("turns");
    this.scroller = byId("chat");
    byId("samples").replaceChildren(...SAMPLES.map((text) => sample(text, onSample)));
  }

  /** Show a conversation from the history, or none. */
  restore(messages) {
    this.messages = messages;
    this.turns.replaceChildren(...messages.map(turnOf));
    byId("welcome").hidden = messages.length > 0;
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  /** Send a message and stream the reply. */
  async send(text, signal) {
    const mode = this.controls.mode;
    this.messages = [...this.messages, { role: "user", content: text }];
    byId("welcome").hidden = true;
    clearCycles();
    this.gauges.begin([mode]);
    const turn = turnOf({ role: "assistant", content: "", mode });
    turn.classList.add("running");
    const meter = element("div", {});
    turn.append(meter);
    this.turns.append(turnOf({ role: "user", content: text }), turn);
    this.scroller.scrollTop = this.scroller.scrollHeight;
    try {
      await this.#stream(mode, turn, meter, signal);
    } finally {
      turn.classList.remove("running");
      this.onTurn(this.messages);
    }
  }

  async #stream(mode, turn, meter, signal) {
    const request = { model: this.model, messages: this.messages.map(plain), ...this.controls.request(mode) };
    const show = (measure, reason) => {
      following(this.scroller, () => meter.replaceChildren(facts(measure, reason)));
    };
    let live = new Measure(performance.now());
    const ticking = setInterval(() => show(live), REFRESH_MS);
    const onCommit = (measure) => this.gauges.update((live = measure));
    try {
      const container = turn.querySelector(".text");
      const reply = await stream({ fields: request, container, scroller: this.scroller, signal, onCommit });
      clearInterval(ticking);
      show(reply.measure, reply.reason);
      this.gauges.finish(reply.measure);
      this.#said(reply.text, mode);
      announce(`Reply of ${reply.measure.tokens} tokens in ${duration(reply.measure.total())}, ${reply.reason}.`);
    } catch (error) {
      meter.replaceChildren();
      turn.append(element("p", { className: "error", role: "alert", textContent: error.message }));
      this.#said(error.text, mode);
      throw error;
    } finally {
      clearInterval(ticking);
    }
  }

  // A reply of nothing leaves no turn behind: the question is taken back, and may be asked again.
  #said(content, mode) {
    if (content) this.messages = [...this.messages, { role: "assistant", content, mode }];
    else this.messages = this.messages.slice(0, -1);
  }
}

const plain = ({ role, content }) => ({ role, content });

function turnOf({ role, content, mode }) {
  const name = role === "user" ? "You" : "Model";
  const text = element("div", { className: "text", textContent: content });
  const label = element("h2", { textContent: name }, ...(mode ? [" ", element("small", { textContent: mode })] : []));
  return element("li", { className: `turn ${role}` }, label, text);
}

function sample(text, onSample) {
  const button = element("button", { type: "button", textContent: text });
  button.addEventListener("click", () => onSample(text));
  return element("li", {}, button);
}
