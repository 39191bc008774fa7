// The form of decoding parameters, and what it makes of a request.

import { element } from "./dom.js";
import { forever, load, save } from "./storage.js";

const MODES = {
  ar: "One token a pass, the plain way.",
  mars: "A block a pass, taken while the proposer is confident.",
  prove: "A block, taken while both models trust it.",
  lossless: "The proposer checks its own block; exactly ar's text.",
  fused: "Checks and proposes in one pass; exactly ar's text.",
  auto: "As many rows as pay at the moment; exactly ar's text.",
  speculative: "Small model drafts, large one checks; exactly ar's text.",
};
const BLOCKS = ["mars", "prove", "lossless", "fused", "auto"];
const GREEDY = ["mars", "prove"];
const SIZES = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64];
const THRESHOLDS = [0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1];

// name: label, values to slide over, the modes that use it, and its value where the server names none
const SLIDERS = {
  theta: { label: "Threshold θ", values: THRESHOLDS, modes: ["prove"] },
  tau: { label: "Threshold τ", values: [0, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 1], modes: ["mars"] },
  block_size: { label: "Block size", values: SIZES, modes: BLOCKS },
  draft_length: { label: "Draft length", values: [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32], modes: ["speculative"] },
  temperature: {
    label: "Temperature",
    values: Array.from({ length: 21 }, (_, tenth) => tenth / 10),
    modes: Object.keys(MODES).filter((mode) => !GREEDY.includes(mode)),
    initial: 0,
  },
  max_tokens: { label: "Most tokens", values: [16, 32, 64, 128, 256, 512, 1024, 2048], modes: Object.keys(MODES), initial: 256 },
};
const OUTSIDE = ["temperature", "max_tokens"]; // of `decoding`
const STORED = "prove.settings";

export class Controls {
  /** Builds the form for what the model's card offers. `onChange` hears of each change. */
  constructor(form, card, onChange) {
    this.offered = card.decoding;
    this.onChange = onChange;
    this.values = { ...this.#defaults(), ...load(forever, STORED, {}) };
    if (!this.offered.modes.includes(this.values.mode)) this.values.mode = this.offered.mode;
    if (!this.offered.gates.includes(this.values.gate)) this.values.gate = this.offered.gate;
    form.addEventListener("submit", (event) => event.preventDefault());
    this.picker = this.#modePicker();
    this.gate = this.#gatePicker();
    this.rows = Object.entries(SLIDERS).map(([name, slider]) => ({ ...slider, row: this.#slider(name, slider) }));
    form.replaceChildren(this.picker, this.gate, ...this.rows.map(({ row }) => row));
    this.show([this.values.mode]);
  }

  get mode() {
    return this.values.mode;
  }

  get modes() {
    return this.offered.modes;
  }

  /** Show what these modes use; the choice of a mode too, unless a race makes it. */
  show(modes, racing = false) {
    this.picker.hidden = racing;
    this.gate.hidden = !modes.includes("prove");
    for (const { row, modes: users } of this.rows) row.hidden = !users.some((mode) => modes.includes(mode));
  }

  /** Choose a mode as a click does. */
  choose(mode) {
    const input = [...this.picker.elements].find(({ value }) => value === mode);
    if (!input || this.picker.hidden) return;
    input.checked = true;
    this.#set("mode", mode);
  }

  /** The fields of a request in `mode`. */
  request(mode) {
    const used = Object.keys(SLIDERS).filter((name) => SLIDERS[name].modes.includes(mode));
    const inside = used.filter((name) => !OUTSIDE.includes(name));
    const decoding = { mode, trace: true, ...this.#pick(inside), ...(mode === "prove" ? this.#pick(["gate"]) : {}) };
    return { decoding, ...this.#pick(used.filter((name) => OUTSIDE.includes(name))) };
  }

  #pick(names) {
    return Object.fromEntries(names.map((name) => [name, this.values[name]]));
  }

  #defaults() {
    const initial = Object.entries(SLIDERS).map(([name, { initial }]) => [name, this.offered[name] ?? initial]);
    return { mode: this.offered.mode, gate: this.offered.gate, ...Object.fromEntries(initial) };
  }

  #set(name, value) {
    this.values[name] = value;
    save(forever, STORED, this.values);
    if (name === "mode") {
      this.note.textContent = MODES[value];
      this.show([value]);
    }
    this.onChange();
  }

  #modePicker() {
    this.note = element("p", { className: "fine", textContent: MODES[this.values.mode] });
    const choices = this.offered.modes.map((mode) => this.#choice("mode", mode));
    const chips = element("div", { className: "chips" }, ...choices);
    return element("fieldset", {}, element("legend", { textContent: "Mode" }), chips, this.note);
  }

  #gatePicker() {
    const chips = element("div", { className: "chips" }, ...this.offered.gates.map((gate) => this.#choice("gate", gate)));
    return element("fieldset", {}, element("legend", { textContent: "Gate" }), chips);
  }

  #choice(name, value) {
    const input = element("input", { type: "radio", name, value, checked: this.values[name] === value });
    input.addEventListener("change", () => this.#set(name, value));
    return element("label", {}, input, element("span", { textContent: value }));
  }

  #slider(name, { label, values }) {
    const steps = [...new Set([...values, this.values[name]])].sort((a, b) => a - b);
    const output = element("output", { textContent: this.values[name] });
    const input = element("input", { type: "range", id: name, min: 0, max: steps.length - 1, step: 1 });
    input.value = steps.indexOf(this.values[name]);
    input.ariaValueText = `${this.values[name]}`;
    input.addEventListener("input", () => {
      const value = steps[input.value];
      output.textContent = input.ariaValueText = `${value}`;
      this.#set(name, value);
    });
    return element("div", { className: "slider" }, element("label", { htmlFor: name, textContent: label }), input, output);
  }
}
